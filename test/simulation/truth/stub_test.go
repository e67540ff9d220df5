package truth_test

var customRows, versionRows, deletionRows, readRows, watchRows, definitionRows, discoveryRows, builtinRows, metacontrollerRows []row
