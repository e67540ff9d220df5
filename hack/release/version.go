/*
Copyright The Metacontroller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// binaryVersion matches the version whose features the sources have, as major.minor.
var binaryVersion = regexp.MustCompile(`(?m)^\s*BinaryVersion = "(\d+\.\d+)"$`)

// checkVersion reports a release whose sources name another version for their features: its feature gates and --emulated-version would be those
// of that one. A commit without a tag may be of any.
func (r *release) checkVersion() error {
	file := filepath.Join("pkg", "features", "features.go")
	data, err := os.ReadFile(filepath.Join(r.root, file))
	if err != nil {
		return fmt.Errorf("reading the version of the features: %w", err)
	}
	match := binaryVersion.FindSubmatch(data)
	if match == nil {
		return fmt.Errorf("there is no BinaryVersion in %s", file)
	}
	if named := string(match[1]); !described.MatchString(r.version) && !strings.HasPrefix(r.version, "v"+named+".") {
		return fmt.Errorf("BinaryVersion in %s is %s, and the release is %s: set it to major.minor of the release, in the commit that is tagged", file, named, r.version)
	}
	return nil
}
