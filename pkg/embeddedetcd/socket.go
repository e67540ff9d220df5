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

package embeddedetcd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

const (
	// socketName is the file name of the unix socket.
	socketName = "etcd.sock"
	// maxSocketPath is how many bytes the path of a unix socket may have: sun_path has 108 with the closing zero on Linux.
	maxSocketPath = 107
)

// A runDirectory is the private directory with the socket.
type runDirectory struct {
	path string
	// temporary directories are removed with everything in them when they are not needed any more.
	temporary bool
}

// newRunDirectory makes dir/run, or a private directory with a shorter name when a socket in dir/run could not be addressed.
func newRunDirectory(dir string) (runDirectory, error) {
	r := runDirectory{path: filepath.Join(dir, "run")}
	if !addressable(r.socket()) {
		short, err := os.MkdirTemp("", "metacontroller-etcd-")
		if err != nil {
			return runDirectory{}, classify(dir, fmt.Errorf("making a directory for the socket of embedded etcd: %w", err))
		}
		r = runDirectory{path: short, temporary: true}
		if !addressable(r.socket()) {
			r.remove()
			return runDirectory{}, fmt.Errorf("no place for the socket of embedded etcd: the paths %s and %s cannot be used for a "+
				"socket (at most %d bytes, no characters that a URL escapes); choose a shorter data directory or set TMPDIR",
				filepath.Join(dir, "run", socketName), r.socket(), maxSocketPath)
		}
	}
	if err := os.MkdirAll(r.path, 0o700); err != nil {
		return runDirectory{}, classify(dir, fmt.Errorf("making directory %s: %w", r.path, err))
	}
	// The socket itself is created with the umask's rights, so this directory is what keeps others out.
	if err := os.Chmod(r.path, 0o700); err != nil { //nolint:gosec // A directory needs the right to enter it.
		return runDirectory{}, fmt.Errorf("restricting directory %s: %w", r.path, err)
	}
	return r, nil
}

func (r runDirectory) socket() string { return filepath.Join(r.path, socketName) }

func (r runDirectory) url() url.URL { return url.URL{Scheme: "unix", Path: r.socket()} }

func (r runDirectory) remove() {
	if r.temporary {
		_ = os.RemoveAll(r.path)
	}
}

// addressable tells whether the kernel accepts the path for a socket, and clients find it by its URL.
func addressable(path string) bool {
	u := url.URL{Scheme: "unix", Path: path}
	return len(path) <= maxSocketPath && u.String() == "unix://"+path
}
