# ndpsim with all extras that need no GPU: docker build -t ndpsim . && docker run --rm ndpsim gemv --hw trimoe
FROM python:3.13-slim
COPY . /src
RUN pip install --no-cache-dir '/src[milp,optimize,parquet]' && rm -rf /src \
  && useradd --create-home ndpsim
USER ndpsim
WORKDIR /home/ndpsim
# Kernels are compiled once here, and not in each container.
RUN ndpsim gemv --shape 64,64 > /dev/null
ENTRYPOINT ["ndpsim"]
CMD ["--help"]
