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

package rights

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"
)

// Verbs that API servers ask for beside that of the request, and Escalate.
const (
	bind   = "bind"
	attest = "attest"
	sign   = "sign"
)

const (
	groupRBAC         = "rbac.authorization.k8s.io"
	groupCertificates = "certificates.k8s.io"
	groupAdmission    = "admissionregistration.k8s.io"
	groupDevices      = "resource.k8s.io"

	// revisions are the resource of ControllerRevisions.
	revisions = "controllerrevisions"
	// signingRequests are the resource of CertificateSigningRequests.
	signingRequests = "certificatesigningrequests"
	// claims are the resource of ResourceClaims.
	claims = "resourceclaims"
)

// guarded are the resources at which an API server asks for one more right than that of the request, because their objects give
// rights. It asks it of who makes the request: this server, or the controller's service account.
var guarded = map[schema.GroupResource][]Right{
	{Group: groupRBAC, Resource: "roles"}:        {{Verb: Escalate, Group: groupRBAC, Resource: "roles"}},
	{Group: groupRBAC, Resource: "clusterroles"}: {{Verb: Escalate, Group: groupRBAC, Resource: "clusterroles"}},
	{Group: groupRBAC, Resource: "rolebindings"}: {
		{Verb: bind, Group: groupRBAC, Resource: "roles"}, {Verb: bind, Group: groupRBAC, Resource: "clusterroles"},
	},
	{Group: groupRBAC, Resource: "clusterrolebindings"}:         {{Verb: bind, Group: groupRBAC, Resource: "clusterroles"}},
	{Group: groupCertificates, Resource: "clustertrustbundles"}: {{Verb: attest, Group: groupCertificates, Resource: "signers"}},
	{Group: v1alpha1.GroupName, Resource: "compositecontrollers"}: {
		{Verb: Escalate, Group: v1alpha1.GroupName, Resource: "compositecontrollers"},
	},
	{Group: v1alpha1.GroupName, Resource: "decoratorcontrollers"}: {
		{Verb: Escalate, Group: v1alpha1.GroupName, Resource: "decoratorcontrollers"},
	},
	{Group: v1alpha1.GroupName, Resource: revisions}: {{Verb: Escalate, Group: v1alpha1.GroupName, Resource: revisions}},
}

// guardedStatuses are the resources of which the same is true when their status is written. The signer of a certificate and the driver of a device
// are in the object, so that the right is on all of them. Approvals have a subresource that the engine does not write.
var guardedStatuses = map[schema.GroupResource][]Right{
	{Group: groupCertificates, Resource: signingRequests}:          {{Verb: sign, Group: groupCertificates, Resource: "signers"}},
	{Group: groupCertificates, Resource: "podcertificaterequests"}: {{Verb: sign, Group: groupCertificates, Resource: "signers"}},
	{Group: groupDevices, Resource: claims}: {
		{Verb: Patch, Group: groupDevices, Resource: claims, Subresource: "binding"},
		{Verb: "arbitrary-node:" + Patch, Group: groupDevices, Resource: claims, Subresource: "driver"},
	},
}

// requesters are the resources whose objects act with the rights of who wrote them, by what they say. The kube-controller-manager approves the
// certificate of a node if the user whom the API server recorded in spec.username has the right to that; an API server asks whether the user may
// read the kind of a policy's parameters, which may be any.
var requesters = map[schema.GroupResource][]Right{
	{Group: groupCertificates, Resource: signingRequests}: {
		{Verb: Create, Group: groupCertificates, Resource: signingRequests, Subresource: "nodeclient"},
		{Verb: Create, Group: groupCertificates, Resource: signingRequests, Subresource: "selfnodeclient"},
	},
	{Group: groupAdmission, Resource: "validatingadmissionpolicies"}:       {everything(Get)},
	{Group: groupAdmission, Resource: "mutatingadmissionpolicies"}:         {everything(Get)},
	{Group: groupAdmission, Resource: "validatingadmissionpolicybindings"}: {everything(Get), everything(List)},
	{Group: groupAdmission, Resource: "mutatingadmissionpolicybindings"}:   {everything(Get), everything(List)},
}

func everything(verb string) Right { return Right{Verb: verb, Group: "*", Resource: "*"} }

// Guarded returns the rights beside that of the request for which the cluster looks at who writes objects of a resource, because of what these
// objects give. It returns nil for other resources.
func Guarded(r schema.GroupResource) []Right { return slices.Concat(guarded[r], requesters[r]) }

// Guards reports whether a right is on no kind of a definition, but on what objects of such a kind give.
func Guards(r Right) bool {
	for _, table := range []map[schema.GroupResource][]Right{guarded, guardedStatuses} {
		for _, list := range table {
			if slices.Contains(list, r) {
				return true
			}
		}
	}
	return false
}
