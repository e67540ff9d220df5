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

package localhook

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quiet is how long nothing must change before a change is taken to be whole: editors write several files.
const quiet = 200 * time.Millisecond

// many stands for the names of files that are not known, because more changed at once than could be told.
const many = "many files"

// generated are folders and ends of files that programs write when they run. Folders from which hooks run, such as dist, are none of them.
var (
	generatedFolders = []string{"node_modules", "__pycache__", "vendor", "target"}
	generatedEnds    = []string{".pyc", ".log", "~", ".swp", ".swx", ".tmp"}
)

// A Watch tells which files of a folder, and the folders in it, change, or that one file does. It is for one goroutine. Close it.
type Watch struct {
	folder string
	// only is the name of the one file that is watched, empty for all.
	only    string
	watcher *fsnotify.Watcher
}

// NewWatch begins to watch a folder, or a file. Editors write another file in the place of one, so that its folder is watched.
func NewWatch(path string) (*Watch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching the folder %s: %w", path, err)
	}
	w := &Watch{folder: path, watcher: watcher}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		w.folder, w.only = filepath.Split(filepath.Clean(path))
		w.folder = filepath.Clean(w.folder)
	}
	if err := w.add(w.folder); err != nil {
		return nil, errors.Join(err, watcher.Close())
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() error { return w.watcher.Close() }

// add watches a folder and the folders in it.
func (w *Watch) add(folder string) error {
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && path != w.folder:
			return nil // It was removed meanwhile.
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case path != w.folder && (w.only != "" || ignored(path)):
			return fs.SkipDir
		}
		if err := w.watcher.Add(path); err != nil && (path == w.folder || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("watching the folder %s: %w", folder, err)
	}
	return nil
}

// Ignores tells of a path in a watched folder whether changes there are not told.
func Ignores(relative string) bool {
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(filepath.Clean(relative)), "/"), func(name string) bool { return name != "." && ignored(name) })
}

// ignored tells of a path whether a change of it is none of the hook.
func ignored(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(name, ".") || slices.Contains(generatedFolders, name) ||
		slices.ContainsFunc(generatedEnds, func(end string) bool { return strings.HasSuffix(name, end) })
}

// Folder is the one that is watched.
func (w *Watch) Folder() string { return w.folder }

// Wait waits until files changed and none changed for a moment, and returns their names. The error is that of the context, or of the watch.
func (w *Watch) Wait(ctx context.Context) ([]string, error) { return w.collect(ctx, nil) }

// Changed returns the names of the files that changed until now. It takes a moment, in which changes arrive.
func (w *Watch) Changed(ctx context.Context) ([]string, error) {
	return w.collect(ctx, time.After(quiet))
}

// collect returns the names of files that change until an end. Without one, it is a moment after the last change.
func (w *Watch) collect(ctx context.Context, end <-chan time.Time) ([]string, error) {
	var names []string
	settled := end
	for {
		var name string
		var err error
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-settled:
			return names, nil
		case err = <-w.watcher.Errors:
			name, err = w.lost(err)
		case event := <-w.watcher.Events:
			name, err = w.told(event)
		}
		if err != nil {
			return nil, err
		}
		if name == "" {
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if end == nil {
			settled = time.After(quiet)
		}
	}
}

// told returns the name of the file that an event is about, or nothing if that is none of the hook. A new folder is watched.
func (w *Watch) told(event fsnotify.Event) (string, error) {
	if ignored(event.Name) || event.Op == fsnotify.Chmod || w.only != "" && filepath.Base(event.Name) != w.only {
		return "", nil
	}
	if event.Has(fsnotify.Create) {
		if err := w.add(event.Name); err != nil {
			return "", err
		}
	}
	name, err := filepath.Rel(w.folder, event.Name)
	if err != nil {
		return event.Name, nil //nolint:nilerr // It is a name to print as well.
	}
	return name, nil
}

// lost returns what stands for the changes that the system could not tell. New folders may be among them. Other errors end the watch.
func (w *Watch) lost(err error) (string, error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		return "", fmt.Errorf("watching the folder %s: %w", w.folder, err)
	}
	return many, w.add(w.folder)
}
