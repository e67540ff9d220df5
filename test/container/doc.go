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

// Package container runs the program of an OCI image for tests, as a container runtime would and without one: the layers unpacked, in a
// user namespace and a mount namespace of its own, as the image's user and without capabilities, with a read-only root file system in which
// only volumes are written. The network is the machine's.
//
// A Container unpacks an image layout and makes commands that run its entrypoint; Main, in the package's TestMain, is what such a command
// begins as: the test's own program, started again, which mounts, gives up its rights and becomes the image's program. Where the kernel
// gives no user namespace, root does with a mount namespace, and else with chroot alone, which leaves the root file system writable.
//
// It reads the layout with the standard library alone, so that it also says whether what hack/release writes is one.
package container
