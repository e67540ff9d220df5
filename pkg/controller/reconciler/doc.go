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

// Package reconciler runs one controller of either kind.
//
// Its files are its ideas: definition.go is the view of a controller object that both kinds share, and says what CompositeControllers and
// DecoratorControllers do differently; shared.go has what package manager gives to each controller. controller.go builds and runs a controller, events.go
// says which change enqueues which parent, and sync.go reconciles one parent in phases, of which one calls the hook. writer.go does what a sync decides:
// it asks hooks, writes and remembers. preview.go is the writer that does nothing and notes what it would do, and secrets.go hides in that what people
// may not see. children.go writes the children, and reports.go has the events about them. statuses.go is about the status of the parent, synced.go about
// the condition that the engine keeps in it, finalizing.go about parents that are being finalized, paused.go about those that are paused, and settling.go
// about those that do not settle. parents.go has the table of parents with what is remembered of each, health.go says how the controller is doing, and
// inspect.go how it is doing with each parent. Packages composite and decorator implement Kind; everything else, from the priorities after a start to
// what is forgotten of a parent that is gone, is the same for both.
package reconciler
