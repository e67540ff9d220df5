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

package etcdsnapshot

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// sector divides the size of every database. So whoever knows the size of a file knows whether a checksum is at its end.
const sector = 512

// A checksum compares what is written to it with the SHA-256 at the end of that.
type checksum struct {
	sum  hash.Hash
	tail []byte
	size int64
}

func newChecksum() *checksum { return &checksum{sum: sha256.New()} }

// Write implements io.Writer. It does not fail.
func (c *checksum) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	c.tail = append(c.tail, p...)
	if n := len(c.tail) - sha256.Size; n > 0 {
		c.sum.Write(c.tail[:n]) // It is documented not to fail.
		c.tail = c.tail[:copy(c.tail, c.tail[n:])]
	}
	return len(p), nil
}

// verify returns an error if what was written is not whole.
func (c *checksum) verify() error {
	switch {
	case c.size%sector != sha256.Size || c.size == sha256.Size:
		return fmt.Errorf("it has %d bytes and no checksum at their end: it was cut off, or is no snapshot", c.size)
	case !bytes.Equal(c.sum.Sum(nil), c.tail):
		return errors.New("its checksum is that of other content: it was changed or damaged after it was saved")
	}
	return nil
}

// verifyFile returns a *BrokenError if a file is not a whole snapshot.
func verifyFile(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening snapshot: %w", err)
	}
	defer func() { _ = f.Close() }()
	sum := newChecksum()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("reading snapshot %s: %w", path, err)
	}
	if err := sum.verify(); err != nil {
		return &BrokenError{File: path, Err: err}
	}
	return nil
}
