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

package destination

// A RefusedError says that no connection was made, because no hook may be at that address.
type RefusedError struct {
	// Host is the name or IP address that was to be called.
	Host string
	// Address is the IP address to which it leads, with the port where that matters. Empty: it was not looked up.
	Address string
	// Kind says what the address is.
	Kind string
	// Flag of the server allows it. Empty: nothing does.
	Flag string
}

// foundByProxy is the kind of a name that is allowed as that of a Service, and that something else may have for who looks it up elsewhere.
const foundByProxy = "a name that a proxy may find outside of the cluster"

// Error says which address was refused, and why.
func (e *RefusedError) Error() string {
	text := e.Host
	if e.Address != "" && e.Address != e.Host {
		text += " leads to " + e.Address + ", which"
	}
	return text + " is " + e.Kind
}

// Advice says which flag of the server allows the address, or that none does.
func (e *RefusedError) Advice() string {
	if e.Kind == foundByProxy {
		return "write it as NAME.NAMESPACE.svc, exempt it from the proxy with NO_PROXY of this server, or add the host itself to " + AllowedHostsFlag
	}
	switch e.Flag {
	case AllowLoopbackFlag:
		return "run the hook behind a Service, or run this server with " + AllowLoopbackFlag
	case AllowedHostsFlag:
		return "add the host, or a network that it is in, to " + AllowedHostsFlag + " of this server"
	default:
		return "this server calls no hook there, and no flag allows it"
	}
}
