// A GEMV unit in the handshake of docs/rtl.md: for each lane one multiplier array that takes a burst of 32 weights
// of 16 bits, and spends a clock on each token. Rows come out in the order in which they end.
module serial #(
    parameter LANES = 8, VALUES = 32, TOKENS = 1, ROWS = 32, VECTORS = 512
) (
    input clk, input rst,
    input [LANES-1:0] in_valid, output [LANES-1:0] in_ready,
    input [LANES*512-1:0] in_data, input [LANES*16-1:0] in_row, input [LANES*16-1:0] in_vector,
    input [LANES-1:0] act_valid, input [15:0] act_vector, input [511:0] act_data,
    input go, input tokens, input [15:0] row_bursts,
    output reg out_valid, input out_ready,
    output reg [15:0] out_row, output reg out_token, output reg signed [47:0] out_sum
);
  reg [15:0] first;                      // the first row that is not complete
  wire [4:0] head = first[4:0];
  wire signed [47:0] sum[LANES-1:0];     // of the first row, in each lane
  wire [15:0] count[LANES-1:0];          // and its bursts
  reg signed [47:0] total;
  reg [15:0] counted;
  integer k;
  always @* begin
    total = 0;
    counted = 0;
    for (k = 0; k < LANES; k = k + 1) begin
      total = total + sum[k];
      counted = counted + count[k];
    end
  end
  wire leaves = go && counted == row_bursts && (!out_valid || out_ready);
  always @(posedge clk) begin
    if (rst) out_valid <= 0;
    else if (leaves) begin
      out_valid <= 1;
      out_row <= first;
      out_token <= 0;
      out_sum <= total;
    end else if (out_ready) out_valid <= 0;
    first <= rst || !go ? 0 : first + leaves;
  end
  genvar lane;
  generate for (lane = 0; lane < LANES; lane = lane + 1) begin : lanes
    reg [511:0] buffer[VECTORS-1:0];     // activations of this lane's bursts
    reg signed [47:0] sums[ROWS-1:0];
    reg [15:0] counts[ROWS-1:0];
    reg [ROWS-1:0] used;                 // rows that have a sum
    wire [15:0] row = in_row[lane*16+:16];
    wire [511:0] acts = buffer[in_vector[lane*16+:16]];
    reg signed [31:0] term;
    reg signed [47:0] product;
    integer i;
    always @* begin
      product = 0;
      for (i = 0; i < VALUES; i = i + 1) begin
        term = $signed(acts[i*16+:16]) * $signed(in_data[lane*512+i*16+:16]);
        product = product + term;
      end
    end
    assign in_ready[lane] = go && row - first < ROWS;
    assign sum[lane] = used[head] ? sums[head] : 0;
    assign count[lane] = used[head] ? counts[head] : 0;
    wire takes = in_valid[lane] && in_ready[lane];
    always @(posedge clk) begin
      if (act_valid[lane]) buffer[act_vector] <= act_data;
      if (takes) begin
        sums[row[4:0]] <= (used[row[4:0]] ? sums[row[4:0]] : 0) + product;
        counts[row[4:0]] <= (used[row[4:0]] ? counts[row[4:0]] : 0) + 1;
      end
      used <= rst ? 0 : used & ~({{ROWS-1{1'b0}}, leaves} << head) | {{ROWS-1{1'b0}}, takes} << row[4:0];
    end
  end endgenerate
endmodule
