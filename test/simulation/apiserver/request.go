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

import "net/url"

// Request is a request as the server sees it after authentication.
type Request struct {
	// User sends it.
	User string
	// UserAgent names the field manager of writes that name none, as in kube-apiserver: what stands before its first slash.
	UserAgent string
	// Method is that of HTTP.
	Method string
	// Path begins with a slash.
	Path string
	// Query has the parameters.
	Query url.Values
	// ContentType and Accept are the headers of these names.
	ContentType, Accept string
	// Body is empty for a request without one.
	Body []byte
}

// Response is the server's response.
type Response struct {
	// Code is the HTTP status.
	Code int
	// ContentType is the header of that name.
	ContentType string
	// RetryAfter is the header of that name. Empty: there is none.
	RetryAfter string
	// Warnings are the texts of the headers of that name.
	Warnings []string
	// Body is complete, unless the request is a watch that was accepted.
	Body []byte
	// Watch has the events of a watch that was accepted, else it is nil.
	Watch *Watch
}
