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

package recording

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	sdk "github.com/metacontroller/metacontroller-apiserver/artifacts/sdk/go/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/exitstatus"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/localhook"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/outputformat"
	"github.com/metacontroller/metacontroller-apiserver/cmd/kubectl-metacontroller/textdiff"
)

// NewReplayCommand returns the command replay.
func NewReplayCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var hook localhook.Flags
	color := "auto"
	cmd := &cobra.Command{
		Use:   "replay DIRECTORY [--hook URL] [--exec COMMAND] [-f FILE]",
		Short: "Compare what a hook on this machine returns with what was recorded",
		Long: `Send the recorded requests in a folder to a hook on this machine, and compare what it returns with the recorded responses. No cluster is
asked. HOOK.request.json and HOOK-TEXT.request.json go to the hook of that name. A value of a Secret that was recorded as hidden is equal to any other one.

With -f, the inline hooks of the controller in a file are evaluated, and with --watch again whenever the file changes.

The exit status is 0 if all responses are the recorded ones, and 1 if one is not. It is greater if that could not be found out, or if the hook failed.`,
		Example: `  kubectl metacontroller replay testdata --hook http://localhost:8080/sync
  kubectl metacontroller replay testdata --exec 'python3 hook.py' --watch
  kubectl metacontroller replay testdata -f controller.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			colored, err := textdiff.WantsColor(color, streams.Out)
			if err != nil {
				return err
			}
			return hook.Run(cmd.Context(), streams.ErrOut, func(ctx context.Context, called *localhook.Hook) error {
				// Files may have changed since the last time.
				pairs, err := read(args[0])
				var c caller = called
				if err == nil && hook.Filename != "" {
					c, err = inlineHooksOf(hook.Filename, streams.In, called)
				}
				if err != nil {
					return err
				}
				return replay(ctx, textdiff.Printer{Out: streams.Out, Color: colored}, c, pairs)
			})
		},
	}
	hook.Add(cmd.Flags(), localhook.DefaultHook)
	hook.AddFilename(cmd.Flags(), "file or folder with a controller, whose inline hooks are evaluated; - for the standard input")
	hook.AddWatch(cmd.Flags(), "replay")
	cmd.Flags().StringVar(&color, "color", color, "color the difference: auto (on a terminal), always or never")
	return exitstatus.Compares(cmd)
}

// caller calls a hook.
type caller interface {
	Call(ctx context.Context, name string, body []byte) ([]byte, error)
}

// replay compares the responses of a hook with those of the pairs, and prints the differences and a summary.
func replay(ctx context.Context, p textdiff.Printer, hook caller, pairs []pair) error {
	different, failed := 0, 0
	for _, recorded := range pairs {
		response, err := hook.Call(ctx, hookOf(recorded.name), recorded.request)
		if localhook.IsUnreachable(err) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			failed++
			p.Titlef("%s", recorded.name+requestEnd)
			p.Notef("the hook failed: %v", err)
			continue
		}
		lines, err := compare(recorded, response)
		if err != nil {
			return err
		}
		if textdiff.Different(lines) {
			different++
			p.Files(recorded.name+responseEnd, "the hook returned")
			p.Hunks(lines)
		}
	}
	return verdict(p.Out, len(pairs), different, failed)
}

// compare compares the recorded response with another one. A value of a Secret that was recorded as hidden is equal to any other one.
func compare(recorded pair, response []byte) ([]textdiff.Line, error) {
	wanted, err := decode(recorded.response)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w: record it again", recorded.name+responseEnd, err)
	}
	got, err := decode(response)
	if err != nil {
		return nil, fmt.Errorf("reading what the hook returned to %s: %w", recorded.name+requestEnd, err)
	}
	sdk.HideSecrets(wanted, got)
	wantedText, err := indented(wanted)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", recorded.name+responseEnd, err)
	}
	gotText, err := indented(got)
	if err != nil {
		return nil, fmt.Errorf("writing what the hook returned to %s: %w", recorded.name+requestEnd, err)
	}
	return textdiff.Lines(string(wantedText), string(gotText)), nil
}

// verdict says how it went.
func verdict(out io.Writer, all, different, failed int) error {
	requests := outputformat.Count(all, "request", "requests")
	switch {
	case failed > 0:
		return &exitstatus.Error{Status: exitstatus.Trouble, Err: fmt.Errorf("the hook failed with %d of %s, and returned something else than was recorded to %d: "+
			"what it printed says why", failed, requests, different)}
	case different > 0:
		fmt.Fprintf(out, "The hook returned something else than was recorded to %d of %s.\n", different, requests)
		return exitstatus.ErrDifferent
	}
	fmt.Fprintf(out, "The hook returned what was recorded to %s.\n", requests)
	return nil
}
