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

package controllerobject_test

import (
	"strings"
	"testing"

	"github.com/metacontroller/metacontroller-apiserver/pkg/controllerobject"
)

func TestNamesOfControllers(t *testing.T) {
	for argument, want := range map[string]controllerobject.Reference{
		"web":                     {Name: "web"},
		"cc/web":                  {Kind: controllerobject.Composite, Name: "web"},
		"CompositeController/web": {Kind: controllerobject.Composite, Name: "web"},
		"compositecontrollers.metacontroller.k8s.io/web": {Kind: controllerobject.Composite, Name: "web"},
		"dc/web":         {Kind: controllerobject.Decorator, Name: "web"},
		"dec/web":        {Kind: controllerobject.Decorator, Name: "web"},
		"decorators/web": {Kind: controllerobject.Decorator, Name: "web"},
	} {
		if got, err := controllerobject.Parse(argument); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", argument, got, err, want)
		}
	}
	for argument, want := range map[string]string{
		"":               "names no controller: write NAME, cc/NAME or dc/NAME",
		"cc/":            "names no controller",
		"cc/a/b":         "names no controller",
		"deployment/web": `"deployment" is not a kind of controllers`,
	} {
		if got, err := controllerobject.Parse(argument); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %q", argument, got, err, want)
		}
	}
}
