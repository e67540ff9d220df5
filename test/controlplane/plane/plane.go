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

package plane

import (
	"context"
	_ "embed" // The stages are a file.
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/certs"
	"github.com/metacontroller/metacontroller-apiserver/test/controlplane/process"
)

const (
	// startAttempts is how often a start is tried when another process took a port in the meantime.
	startAttempts = 5
	// startLimit is for a machine that is busy with other things; usual are some seconds.
	startLimit = 10 * time.Minute
	// stopGrace is short: nothing that the programs hold is kept, so there is no use in waiting for a long farewell.
	stopGrace = 500 * time.Millisecond
)

// Options configure a control plane.
type Options struct {
	// Programs is the folder of the programs.
	Programs string
	// Folder holds everything that the control plane writes.
	Folder *Folder
	// Fsync makes etcd wait for the disk, as a real one does. Default false: tests lose nothing by a power cut.
	Fsync bool
	// Audit makes kube-apiserver write the file audit.log beside the programs' logs, with a line of JSON for each request that writes.
	Audit bool
	// Frugal gives each program but kube-apiserver one processor at a time: they do the same with less work, and later where one does much.
	Frugal bool
	// WithoutControllers leaves kube-controller-manager to StartControllers. Until then nobody collects garbage, and Pods get no service account
	// for as long as the control plane runs.
	WithoutControllers bool
}

// Plane is a running control plane. It is for one goroutine.
type Plane struct {
	options   Options
	ports     ports
	files     files
	client    *client
	processes []*process.Process
	died      chan error
}

// Info tells another program how to use the control plane.
type Info struct {
	// Kubeconfig is a file with an administrator's access.
	Kubeconfig string `json:"kubeconfig"`
	// Kubectl is the program of the same version.
	Kubectl string `json:"kubectl"`
	// Dir holds the control plane's files, logs among them.
	Dir string `json:"dir"`
	// Server is the address of kube-apiserver.
	Server string `json:"server"`
	// EtcdServers is the address of the control plane's etcd, which takes no credentials.
	EtcdServers string `json:"etcdServers"`
	// Processes has the process number of each program.
	Processes map[string]int `json:"processes"`
}

// Start starts a control plane and returns when Pods can be created and are scheduled. After an error nothing is left
// running; the folder, logs in it, is left to the caller.
func Start(ctx context.Context, o Options) (*Plane, error) {
	for attempt := 1; ; attempt++ {
		p := &Plane{options: o}
		err := p.start(ctx)
		if err == nil {
			return p, nil
		}
		p.Stop()
		if attempt == startAttempts || !portTaken(err) {
			return nil, err
		}
		if err := o.Folder.clear(); err != nil {
			return nil, err
		}
	}
}

func (p *Plane) start(ctx context.Context) (err error) {
	if p.ports, err = freePorts(ctx); err != nil {
		return err
	}
	if p.files, err = writeFiles(p.options.Folder.Path, p.ports); err != nil {
		return err
	}
	server, clients := []component{p.etcd(), p.apiServer()}, []component{p.scheduler(), p.kwok()}
	// Room for all, so that nobody who reports an end is kept waiting.
	p.died = make(chan error, len(server)+len(clients)+1)

	if err := p.launch(ctx, server...); err != nil {
		return err
	}
	if p.client, err = newClient(p.files, p.ports); err != nil {
		return err
	}
	if err := p.await(ctx, condition{"kube-apiserver to be ready", p.client.serverReady}); err != nil {
		return err
	}
	ready := []condition{
		{"the node to be made", p.client.createNode},
		{"the node to be ready", p.client.nodeReady},
		{"kube-scheduler to be ready", p.client.schedulerReady},
		{"the settings of aggregated API servers", p.client.aggregationSettings},
	}
	if !p.options.WithoutControllers {
		clients, ready = append(clients, p.controllerManager()), append(ready, p.controllersReady()...)
	}
	// Not earlier: these end when the API server refuses them, which it does until its RBAC rules are there.
	if err := p.launch(ctx, clients...); err != nil {
		return err
	}
	return p.await(ctx, ready...)
}

// StartControllers starts what was left out by WithoutControllers, and returns when it works.
func (p *Plane) StartControllers(ctx context.Context) error {
	if err := p.launch(ctx, p.controllerManager()); err != nil {
		return err
	}
	return p.await(ctx, p.controllersReady()...)
}

func (p *Plane) controllersReady() []condition {
	return []condition{
		{"kube-controller-manager to be ready", p.client.controllerManagerReady},
		{"the default service account", p.client.serviceAccount},
	}
}

// Info returns how to use the control plane.
func (p *Plane) Info() Info {
	info := Info{
		Kubeconfig:  p.files.adminConfig,
		Kubectl:     filepath.Join(p.options.Programs, "kubectl"),
		Dir:         p.options.Folder.Path,
		Server:      p.ports.server(),
		EtcdServers: p.ports.etcdServers(),
		Processes:   make(map[string]int, len(p.processes)),
	}
	for _, running := range p.processes {
		info.Processes[running.Name()] = running.ID()
	}
	return info
}

// Died yields an error when one of the programs has ended without being told to.
func (p *Plane) Died() <-chan error { return p.died }

// Stop ends all programs and returns when they have ended.
func (p *Plane) Stop() {
	process.StopAll(stopGrace, p.processes...)
}

func (p *Plane) launch(ctx context.Context, components ...component) error {
	for _, c := range components {
		program := process.Program{Name: c.name, Path: filepath.Join(p.options.Programs, c.name), Args: c.args}
		if p.options.Frugal && c.name != apiServerName {
			program.Environment = []string{"GOMAXPROCS=1"}
		}
		started, err := process.Start(ctx, p.files.logs, program)
		if err != nil {
			return err
		}
		p.processes = append(p.processes, started)
		// Ends with the program, for which Stop waits.
		go func() { p.died <- started.Err() }()
	}
	return nil
}

// condition is something to wait for.
type condition struct {
	what string
	ask  func(context.Context) error
}

// await asks for one condition after the other, until the answer is nil, a program has died, or startLimit has passed.
func (p *Plane) await(ctx context.Context, conditions ...condition) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for _, c := range conditions {
		for last := c.ask(ctx); last != nil; last = c.ask(ctx) {
			select {
			case <-ticker.C:
			case err := <-p.died:
				return fmt.Errorf("waiting for %s: %w", c.what, err)
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s: %w", c.what, errors.Join(ctx.Err(), last))
			}
		}
	}
	return nil
}

// component is a program with its arguments.
type component struct {
	name string
	args []string
}

// apiServerName is the program that has most to do.
const apiServerName = "kube-apiserver"

// withoutControllers are those that need a network, a real node, a volume that is made for a claim, a device or tokens of former
// versions: they have nothing to do here, but look for it all the time.
const withoutControllers = "-node-ipam-controller," +
	"-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller," +
	"-bootstrap-signer-controller,-token-cleaner-controller,-legacy-serviceaccount-token-cleaner-controller,-ttl-controller," +
	"-persistentvolume-attach-detach-controller,-persistentvolume-expander-controller,-ephemeral-volume-controller," +
	"-resourceclaim-controller,-device-taint-eviction-controller"

func (p *Plane) etcd() component {
	peer := fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcdPeer)
	args := []string{
		"--name=control-plane",
		"--data-dir=" + p.files.data,
		"--listen-client-urls=" + p.ports.etcdServers(),
		"--advertise-client-urls=" + p.ports.etcdServers(),
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=control-plane=" + peer,
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}
	if !p.options.Fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return component{"etcd", args}
}

func (p *Plane) apiServer() component {
	args := []string{
		"--etcd-servers=" + p.ports.etcdServers(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--secure-port=" + strconv.Itoa(p.ports.apiServer),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + p.files.clientCA,
		"--tls-cert-file=" + p.files.serving.CertFile,
		"--tls-private-key-file=" + p.files.serving.KeyFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + p.files.tokenKey,
		"--service-account-key-file=" + p.files.tokenPublic,
		"--requestheader-client-ca-file=" + p.files.proxyCA,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.files.proxy.CertFile,
		"--proxy-client-key-file=" + p.files.proxy.KeyFile,
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
		"--v=1",
	}
	if p.options.WithoutControllers {
		// What these wait for is made by the controllers.
		args = append(args, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
	}
	if p.options.Audit {
		// Whoever reads it reads one file, which would begin anew after 100 MiB.
		args = append(args, "--audit-policy-file="+p.files.auditPolicy, "--audit-log-path="+filepath.Join(p.files.logs, "audit.log"), "--audit-log-maxsize=4096")
	}
	return component{apiServerName, args}
}

func (p *Plane) controllerManager() component {
	return component{"kube-controller-manager", []string{
		"--kubeconfig=" + p.files.controllerManagerConfig,
		"--authentication-kubeconfig=" + p.files.controllerManagerConfig,
		"--authorization-kubeconfig=" + p.files.controllerManagerConfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(p.ports.controllerManager),
		"--tls-cert-file=" + p.files.serving.CertFile,
		"--tls-private-key-file=" + p.files.serving.KeyFile,
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + p.files.tokenKey,
		"--root-ca-file=" + p.files.servingCA,
		"--controllers=*," + withoutControllers,
		// Nobody waits for limits that protect a cluster of thousands.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--v=1",
	}}
}

func (p *Plane) scheduler() component {
	return component{"kube-scheduler", []string{
		"--kubeconfig=" + p.files.schedulerConfig,
		"--authentication-kubeconfig=" + p.files.schedulerConfig,
		"--authorization-kubeconfig=" + p.files.schedulerConfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(p.ports.scheduler),
		"--tls-cert-file=" + p.files.serving.CertFile,
		"--tls-private-key-file=" + p.files.serving.KeyFile,
		"--leader-elect=false",
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--v=1",
	}}
}

// lost is the label of nodes that nobody keeps alive.
const lost = "node.example.com/lost"

func (p *Plane) kwok() component {
	return component{"kwok", []string{
		"--kubeconfig=" + p.files.kwokConfig,
		"--config=" + p.files.stages,
		"--manage-nodes-with-label-selector=!" + lost,
		"--node-ip=127.0.0.1",
		"--node-lease-duration-seconds=40",
		"--cidr=10.200.0.0/16",
	}}
}

// Ports are taken from a range below the one from which kernels take the ports of outgoing connections (32768 and above
// on Linux, 49152 and above elsewhere): one of those could come between finding a free port and listening on it.
const (
	firstPort = 20000
	portCount = 10000
)

// ports are the loopback ports of one control plane.
type ports struct {
	etcdClient, etcdPeer, apiServer, controllerManager, scheduler int
}

// freePorts returns ports that nobody listens on. Another process may take one before its program does; the program then
// ends with an error for which portTaken is true.
func freePorts(ctx context.Context) (ports, error) {
	var p ports
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close()
		}
	}()
	for _, port := range []*int{&p.etcdClient, &p.etcdPeer, &p.apiServer, &p.controllerManager, &p.scheduler} {
		found, listener, err := freePort(ctx)
		if err != nil {
			return ports{}, err
		}
		// Kept open until all are found, so that no port is found twice.
		open = append(open, listener)
		*port = found
	}
	return p, nil
}

func freePort(ctx context.Context) (int, net.Listener, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(portCount)
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, listener, nil
		}
		last = err
	}
	return 0, nil, fmt.Errorf("finding a free port from %d to %d: %w", firstPort, firstPort+portCount-1, last)
}

// portTaken tells whether a program ended because another one listens on its port.
func portTaken(err error) bool {
	ended, ok := errors.AsType[*process.EndedError](err)
	return ok && strings.Contains(ended.Tail, "address already in use")
}

func (p ports) etcdServers() string { return fmt.Sprintf("http://127.0.0.1:%d", p.etcdClient) }

func (p ports) server() string { return loopback(p.apiServer) }

func loopback(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// stages tell kwok how a node and its Pods live.
//
//go:embed stages.yaml
var stages []byte

// auditPolicy has who wrote what be noted.
//
//go:embed audit-policy.yaml
var auditPolicy []byte

// files are the files that the programs need.
type files struct {
	data, logs string

	clientCA, servingCA, proxyCA string
	serving, proxy               certs.Pair
	tokenKey, tokenPublic        string

	adminConfig, controllerManagerConfig, schedulerConfig, kwokConfig string
	stages, auditPolicy                                               string
}

// writeFiles makes the keys and certificates, and the files that name them.
func writeFiles(folder string, p ports) (files, error) {
	f := files{data: filepath.Join(folder, "etcd"), logs: filepath.Join(folder, "logs"), stages: filepath.Join(folder, "stages.yaml")}
	f.auditPolicy = filepath.Join(folder, "audit-policy.yaml")
	certificates := filepath.Join(folder, "certificates")
	for _, d := range []string{f.logs, certificates} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return f, fmt.Errorf("creating the control plane's folders: %w", err)
		}
	}
	if err := os.WriteFile(f.stages, stages, 0o600); err != nil {
		return f, fmt.Errorf("writing kwok's stages: %w", err)
	}
	if err := os.WriteFile(f.auditPolicy, auditPolicy, 0o600); err != nil {
		return f, fmt.Errorf("writing kube-apiserver's audit policy: %w", err)
	}
	clientCA, err := certs.NewAuthority(certificates, "client-ca")
	if err != nil {
		return f, err
	}
	servingCA, err := certs.NewAuthority(certificates, "serving-ca")
	if err != nil {
		return f, err
	}
	// An authority of its own: whoever has a certificate of it may speak for every user.
	proxyCA, err := certs.NewAuthority(certificates, "front-proxy-ca")
	if err != nil {
		return f, err
	}
	f.clientCA, f.servingCA, f.proxyCA = clientCA.File, servingCA.File, proxyCA.File
	if f.serving, err = servingCA.Server("serving", "kubernetes", "kubernetes.default", "kubernetes.default.svc"); err != nil {
		return f, err
	}
	if f.proxy, err = proxyCA.Client("front-proxy", "front-proxy-client"); err != nil {
		return f, err
	}
	if f.tokenKey, f.tokenPublic, err = servingCA.SigningKey("service-accounts"); err != nil {
		return f, err
	}
	for _, user := range []struct {
		file   *string
		name   string
		groups []string
	}{
		{&f.adminConfig, "admin", []string{"system:masters"}},
		{&f.controllerManagerConfig, "system:kube-controller-manager", nil},
		{&f.schedulerConfig, "system:kube-scheduler", nil},
		{&f.kwokConfig, "kwok", []string{"system:masters"}},
	} {
		name := filepath.Base(filepath.Clean(user.name))
		pair, err := clientCA.Client(name, user.name, user.groups...)
		if err != nil {
			return f, err
		}
		*user.file = filepath.Join(folder, name+".kubeconfig")
		if err := writeKubeconfig(*user.file, p.server(), f.servingCA, pair); err != nil {
			return f, err
		}
	}
	return f, nil
}

// writeKubeconfig writes a file that holds everything, so that it can be copied elsewhere.
func writeKubeconfig(file, server, authority string, pair certs.Pair) error {
	var encoded [3]string
	for i, name := range []string{authority, pair.CertFile, pair.KeyFile} {
		content, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("writing %s: %w", filepath.Base(file), err)
		}
		encoded[i] = base64.StdEncoding.EncodeToString(content)
	}
	content := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: control-plane
clusters:
- name: control-plane
  cluster: {server: %q, certificate-authority-data: %s}
contexts:
- name: control-plane
  context: {cluster: control-plane, user: user}
users:
- name: user
  user: {client-certificate-data: %s, client-key-data: %s}
`, server, encoded[0], encoded[1], encoded[2])
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(file), err)
	}
	return nil
}

const (
	// folderPattern names the folders of control planes in the folder for temporary files.
	folderPattern = "control-plane-*"
	// lockName is the file in them that the owner has locked for as long as it lives.
	lockName = "LOCK"
)

// Folder is the folder of one control plane.
type Folder struct {
	// Path of the folder.
	Path string
	lock *os.File
}

// TemporaryFolder makes a new folder in parent, and removes the folders there whose owners died without doing so.
func TemporaryFolder(parent string) (*Folder, error) {
	removeAbandoned(parent)
	path, err := os.MkdirTemp(parent, folderPattern)
	if err != nil {
		return nil, fmt.Errorf("creating a folder for the control plane: %w", err)
	}
	lock, err := takeLock(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &Folder{Path: path, lock: lock}, nil
}

// NewFolder makes the folder path, which must not exist or be empty.
func NewFolder(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of the control plane: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the control plane: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of the control plane: %w", err)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("the folder %s is not empty; a control plane starts in an empty one", path)
	}
	return &Folder{Path: path}, nil
}

// Remove removes the folder with all that is in it.
func (f *Folder) Remove() error {
	err := os.RemoveAll(f.Path)
	f.Close()
	return err
}

// Close leaves the folder where it is.
func (f *Folder) Close() {
	if f.lock != nil {
		_ = os.Remove(filepath.Join(f.Path, lockName))
		_ = f.lock.Close()
		f.lock = nil
	}
}

// clear removes what an attempt to start has written.
func (f *Folder) clear() error {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return fmt.Errorf("reading the folder of the control plane: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(f.Path, entry.Name())); err != nil {
			return fmt.Errorf("clearing the folder of the control plane: %w", err)
		}
	}
	return nil
}

// takeLock makes the folder's lock. It has its name only when it is locked: others take an unlocked one for abandoned.
func takeLock(path string) (*os.File, error) {
	name := filepath.Join(path, lockName)
	file, err := os.Create(name + ".new")
	if err != nil {
		return nil, fmt.Errorf("creating the lock of the control plane's folder: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the control plane's folder: %w", err), file.Close())
	}
	return file, nil
}

// removeAbandoned removes the folders in parent whose lock nobody holds. What cannot be removed is left: it is in nobody's
// way but the disk's.
func removeAbandoned(parent string) {
	// The pattern is well formed, which is all that Glob complains about.
	names, _ := filepath.Glob(filepath.Join(parent, folderPattern, lockName))
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(name))
		}
		_ = file.Close()
	}
}
