package truth_test

var builtinRows, metacontrollerRows []row
