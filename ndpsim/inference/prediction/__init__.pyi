from ndpsim.inference.prediction.run import predict as predict
