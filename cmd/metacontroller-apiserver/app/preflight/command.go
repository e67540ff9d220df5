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

package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/metacontroller/metacontroller-apiserver/cmd/metacontroller-apiserver/app/kubeconfig"
	"github.com/metacontroller/metacontroller-apiserver/pkg/registry/metacontroller"
	"github.com/metacontroller/metacontroller-apiserver/pkg/rights"
	"github.com/metacontroller/metacontroller-apiserver/pkg/servingcert"
)

const (
	formatText, formatJSON = "text", "json"
	// statusProblem and statusTrouble are the exit statuses beside 0.
	statusProblem, statusTrouble = 1, 2
)

// options are the flags.
type options struct {
	kubeconfig     string
	serviceAccount string
	namespace      string
	service        string
	certificate    certificateFiles
	dataDir        string
	etcd           etcdOptions
	timeout        time.Duration
	output         string
	// account is serviceAccount, parsed. Nil: the user of the kubeconfig, or the Pod's service account.
	account *rights.Account
}

// NewCommand returns the subcommand preflight. It prints its report to the command's standard output.
func NewCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   "preflight [--kubeconfig FILE] [--service-account NAMESPACE/NAME]",
		Short: "Print what would keep a server from working in a cluster",
		Long: `Print what would keep a server from working in a cluster, and how to fix it. Nothing is changed.

It checks that
- the kube-apiserver answers, has a supported version, and an aggregation layer;
- the server's user has the rights that the server uses;
- neither CustomResourceDefinitions, another server nor Metacontroller has the group;
- certificates match, are valid, and have the name of the Service;
- an etcd of yours answers.

The exit status is 0 if nothing is in the way, 1 if there is a problem, and 2 if a check could not be made.`,
		Example: `  # Before an installation inside of the cluster, as an administrator
  metacontroller-apiserver preflight

  # After it: has the server's service account its rights?
  metacontroller-apiserver preflight --service-account metacontroller/metacontroller-apiserver

  # A server outside of the cluster, as the user of its kubeconfig, with certificates and an etcd of yours
  metacontroller-apiserver preflight --kubeconfig FILE --tls-cert-file tls.crt --tls-private-key-file tls.key --ca-file ca.crt \
    --etcd-servers https://etcd.example.org:2379 --etcd-cafile etcd-ca.crt --etcd-certfile etcd.crt --etcd-keyfile etcd.key`,
		Args: func(cmd *cobra.Command, args []string) error {
			return trouble(cobra.NoArgs(cmd, args))
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd)
		},
	}
	o.addFlags(cmd)
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return trouble(fmt.Errorf("%w (see %s --help)", err, c.CommandPath()))
	})
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	kubeconfig.AddFlag(flags, &o.kubeconfig, "")
	flags.StringVar(&o.serviceAccount, "service-account", "", "service account of the server as NAMESPACE/NAME, about whose rights is asked "+
		"by acting as it; empty: the rights of the kubeconfig's user, or of the Pod's service account")
	flags.StringVar(&o.namespace, "namespace", servingcert.DefaultServiceNamespace, "namespace of the server's Service")
	flags.StringVar(&o.service, "service", servingcert.DefaultServiceName, "name of the server's Service")
	flags.StringVar(&o.certificate.cert, "tls-cert-file", "", "serving certificate of the server; empty: it makes its own")
	flags.StringVar(&o.certificate.key, "tls-private-key-file", "", "private key of --tls-cert-file")
	flags.StringVar(&o.certificate.authority, "ca-file", "", "certificate authority of --tls-cert-file; empty: that of the APIService, if it "+
		"is there")
	flags.StringVar(&o.dataDir, "data-dir", "", "data directory of the server, whose certificates are looked at in place of --tls-cert-file")
	flags.StringSliceVar(&o.etcd.servers, "etcd-servers", nil, "addresses of an etcd cluster of yours; empty: the server has its own")
	flags.StringVar(&o.etcd.authority, "etcd-cafile", "", "certificate authority of that etcd")
	flags.StringVar(&o.etcd.cert, "etcd-certfile", "", "client certificate for that etcd")
	flags.StringVar(&o.etcd.key, "etcd-keyfile", "", "private key of --etcd-certfile")
	flags.StringVar(&o.etcd.prefix, "etcd-prefix", metacontroller.KeyRoot, "root of the server's keys in that etcd")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long the cluster may take to answer, and each member of etcd")
	flags.StringVarP(&o.output, "output", "o", formatText, "output format: text or json")
}

func (o *options) run(cmd *cobra.Command) error {
	config, err := o.complete()
	if err != nil {
		return trouble(err)
	}
	report := newReport(o.check(cmd.Context(), config))
	if err := report.print(cmd.OutOrStdout(), o.output); err != nil {
		return trouble(err)
	}
	if report.Result == Failed {
		return &Error{status: statusProblem}
	}
	return nil
}

// trouble is the error of checks that could not be made. Nil for nil.
func trouble(err error) error {
	if err == nil {
		return nil
	}
	return &Error{status: statusTrouble, err: err}
}

// complete looks at the flags, and returns the configuration of requests to the cluster.
func (o *options) complete() (*rest.Config, error) {
	switch {
	case o.output != formatText && o.output != formatJSON:
		return nil, fmt.Errorf("--output must be %s or %s, not %q", formatText, formatJSON, o.output)
	case o.timeout <= 0:
		return nil, fmt.Errorf("--timeout must be positive, not %s", o.timeout)
	case (o.certificate.cert == "") != (o.certificate.key == ""):
		return nil, errors.New("--tls-cert-file and --tls-private-key-file need each other")
	case o.certificate.authority != "" && o.certificate.cert == "":
		return nil, errors.New("--ca-file needs --tls-cert-file")
	case o.certificate.cert != "" && o.dataDir != "":
		return nil, errors.New("--tls-cert-file and --data-dir exclude each other")
	case (o.etcd.cert == "") != (o.etcd.key == ""):
		return nil, errors.New("--etcd-certfile and --etcd-keyfile need each other")
	case len(o.etcd.servers) == 0 && (o.etcd.authority != "" || o.etcd.cert != ""):
		return nil, errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile need --etcd-servers")
	}
	var err error
	if o.account, err = rights.ParseAccount(o.serviceAccount); err != nil {
		return nil, fmt.Errorf("--service-account: %w", err)
	}
	config, err := kubeconfig.Read(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = o.timeout
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config, nil
}

// check makes all checks.
func (o *options) check(ctx context.Context, config *rest.Config) []Finding {
	c, findings := newClusterChecks(ctx, config, o)
	if c != nil {
		findings = append(findings, c.aggregationLayer(ctx)...)
		findings = append(findings, c.rights(ctx)...)
		findings = append(findings, c.group(ctx)...)
	}
	bundle := []byte(nil)
	if c != nil && c.existing != nil {
		bundle = c.existing.CABundle
	}
	findings = append(findings, o.certificates(bundle, time.Now())...)
	return append(findings, o.etcd.check(ctx, o.timeout)...)
}

// certificates looks at those that are given.
func (o *options) certificates(bundle []byte, now time.Time) []Finding {
	files := o.certificate
	if o.dataDir != "" {
		made := servingcert.FilesIn(servingcert.Directory(o.dataDir))
		if _, err := os.Stat(made.CertFile); err != nil {
			return []Finding{{
				Check: "certificate", Result: Skipped,
				Message: fmt.Sprintf("There is no certificate in %s yet: the server makes one when it starts.", o.dataDir),
			}}
		}
		files = certificateFiles{cert: made.CertFile, key: made.KeyFile, authority: made.CAFile}
	}
	if files.cert == "" {
		return []Finding{{
			Check: "certificate", Result: Skipped, Message: "No --tls-cert-file is given: the server makes its own certificate.",
		}}
	}
	return files.check(o.service+"."+o.namespace+".svc", bundle, now)
}

// Result is what a check came to.
type Result string

const (
	// OK says that nothing is in the way.
	OK Result = "ok"
	// Warning says that the server works, but perhaps not as it is wanted to.
	Warning Result = "warning"
	// Failed says that the server would not work, or a part of it would not.
	Failed Result = "failed"
	// Skipped says that the check was not made.
	Skipped Result = "skipped"
)

// A Finding is what one check found out.
type Finding struct {
	// Check names the check, for programs.
	Check string `json:"check"`
	// Result is what it came to.
	Result Result `json:"result"`
	// Message is a sentence.
	Message string `json:"message"`
	// Details are the single things of which Message speaks, such as missing rights. Empty: there are none.
	Details []string `json:"details,omitempty"`
	// Next is the next step, a sentence or commands. Empty: there is nothing to do.
	Next string `json:"next,omitempty"`
}

// problemf is what a check found out that failed, with the next step.
func problemf(check, next, format string, arguments ...any) []Finding {
	return []Finding{{Check: check, Result: Failed, Message: fmt.Sprintf(format, arguments...), Next: next}}
}

// A Report is all that was found out.
type Report struct {
	// Result is the worst of the findings: Failed, Warning or OK.
	Result Result `json:"result"`
	// Findings are in the order of the checks.
	Findings []Finding `json:"findings"`
}

// newReport sums findings up.
func newReport(findings []Finding) *Report {
	r := &Report{Result: OK, Findings: findings}
	switch {
	case r.count(Failed) > 0:
		r.Result = Failed
	case r.count(Warning) > 0:
		r.Result = Warning
	}
	return r
}

func (r *Report) count(result Result) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Result == result {
			n++
		}
	}
	return n
}

// print writes the report, as JSON or as text.
func (r *Report) print(out io.Writer, format string) error {
	if format == formatJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		return nil
	}
	var b strings.Builder
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintf(&b, "%-8s %s\n", f.Result, f.Message)
		for _, detail := range f.Details {
			fmt.Fprintf(&b, "           %s\n", detail)
		}
		if f.Next != "" {
			fmt.Fprintf(&b, "         %s\n", strings.ReplaceAll(f.Next, "\n", "\n           "))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.summary())
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// summary says in a sentence whether the server may be started.
func (r *Report) summary() string {
	failed, warnings := counted(r.count(Failed), "problem"), counted(r.count(Warning), "warning")
	switch r.Result {
	case Failed:
		return failed + " and " + warnings + ": solve the problems before the server is started."
	case Warning:
		return "No problem and " + warnings + ": the server can be started."
	case OK, Skipped:
	}
	return "Nothing is in the way."
}

func counted(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// An Error ends the process with a status. Its message is empty when everything was printed.
type Error struct {
	status int
	err    error
}

// Error returns what is left to print.
func (e *Error) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the cause, nil if there is none.
func (e *Error) Unwrap() error { return e.err }

// ExitStatus is 1 when the checks found a problem, and 2 when they could not be made.
func (e *Error) ExitStatus() int { return e.status }
