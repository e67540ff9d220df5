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

package apiserver

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/kinds"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/store"
	"github.com/metacontroller/metacontroller-apiserver/test/simulation/apiserver/value"
)

const cleanupFinalizer = apiextensionsv1.CustomResourceCleanupFinalizer

var definitions = schema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}

// followUp does what the controllers within kube-apiserver do after a write.
func (s *Server) followUp(k *kinds.Kind, old, o *store.Object) {
	if k.GroupResource() != definitions {
		return
	}
	if o == nil {
		s.undefine(old.Content)
		return
	}
	s.define(o)
}

// define serves a kind as its definition says, and tells the definition's status so.
func (s *Server) define(o *store.Object) {
	kind, err := kinds.FromDefinition(o.Content)
	if err != nil {
		panic(fmt.Sprintf("a definition was admitted that cannot be served: %v", err)) //nolint:forbidigo // It is an error of the program.
	}
	gr := kind.GroupResource()
	if o.Deleting {
		s.published = nil
	}
	if s.kinds[gr] != kind {
		if s.kinds[gr] != nil {
			s.endWatchesOf(kind)
		}
		s.kinds[gr] = kind
		s.published = nil
	}
	established := s.established(o)
	if established == nil {
		return
	}
	v := s.kinds[definitions].Storage
	s.commit(change{version: v, old: o, object: established, entry: Write{User: "system:apiserver", Manager: "kube-apiserver", Verb: verbUpdate, Subresource: statusField}})
}

// established returns a definition whose status says that its names are accepted and that it is served, nil if it says so already.
func (s *Server) established(o *store.Object) value.Object {
	status := value.Map(o.Content, "status")
	names := value.Map(o.Content, "spec", "names")
	if value.Equal(value.Map(status, "acceptedNames"), names) && len(value.List(status, "conditions")) > 0 {
		return nil
	}
	changed := value.Copy(o.Content)
	status = value.Map(changed, "status")
	if status == nil {
		status = value.Object{}
		changed["status"] = status
	}
	status["acceptedNames"] = value.Copy(names)
	if len(value.List(status, "conditions")) == 0 {
		condition := func(kind, reason, message string) value.Object {
			return value.Object{"type": kind, "status": "True", "lastTransitionTime": s.now(), "reason": reason, "message": message}
		}
		status["conditions"] = []any{
			condition("NamesAccepted", "NoConflicts", "no conflicts found"),
			condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
		}
	}
	return changed
}

// terminating says in the status of a definition that it is being deleted.
func terminating(o value.Object, now string) {
	status := value.Map(o, "status")
	if status == nil {
		status = value.Object{}
		o["status"] = status
	}
	status["conditions"] = append(value.List(status, "conditions"), value.Object{
		"type": "Terminating", "status": "True", "lastTransitionTime": now, "reason": "InstanceDeletionPending",
		"message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
}

// definitionEnding reports whether the definition of a kind is being deleted.
func (s *Server) definitionEnding(k *kinds.Kind) bool {
	o := s.store.Table(definitions).Get(store.Key{Name: k.Plural + "." + k.Group})
	return o != nil && value.At(o.Content, "metadata", "deletionTimestamp") != nil
}

// undefine stops serving a kind.
func (s *Server) undefine(definition value.Object) {
	gr := schema.GroupResource{Group: value.String(definition, "spec", "group"), Resource: value.String(definition, "spec", "names", "plural")}
	if k := s.kinds[gr]; k != nil {
		s.endWatchesOf(k)
		delete(s.kinds, gr)
		s.published = nil
	}
}
