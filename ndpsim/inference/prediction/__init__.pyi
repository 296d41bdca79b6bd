from ndpsim.inference.prediction.predict import predict as predict
