from ndpsim.prediction.predict import predict as predict
