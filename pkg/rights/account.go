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

import "github.com/metacontroller/metacontroller-apiserver/pkg/apis/metacontroller/v1alpha1"

// Account names a service account. It is comparable.
type Account struct {
	// Namespace and Name are those of the object.
	Namespace, Name string
}

// AccountOf returns the account that a controller names, nil if it names none.
func AccountOf(ref *v1alpha1.ServiceAccountReference) *Account {
	if ref == nil {
		return nil
	}
	return &Account{Namespace: ref.Namespace, Name: ref.Name}
}

const (
	// userPrefix, with namespace and name behind it, is the user name of a service account.
	userPrefix = "system:serviceaccount:"
	// serviceAccounts are the resource of service accounts.
	serviceAccounts = "serviceaccounts"
)

// User returns the user name that API servers know the account by.
func (a Account) User() string { return userPrefix + a.Namespace + ":" + a.Name }

// Groups returns the groups that API servers put the account into.
func (a Account) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"}
}

// String returns namespace/name.
func (a Account) String() string { return a.Namespace + "/" + a.Name }

// Get returns the right to see whether the account exists.
func (a Account) Get() Right {
	return Right{Verb: "get", Resource: serviceAccounts, Namespace: a.Namespace, Name: a.Name}
}

// Impersonate returns the right to act as the account.
func (a Account) Impersonate() Right {
	return Right{Verb: "impersonate", Resource: serviceAccounts, Namespace: a.Namespace, Name: a.Name}
}
