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
	"fmt"
	"path/filepath"
	"strconv"
)

// component is a program with its arguments.
type component struct {
	name string
	args []string
}

// apiServerName is the program that has most to do.
const apiServerName = "kube-apiserver"

// withoutControllers are those that need a cloud, a network, a real node, a volume that is made for a claim, a device or tokens of former
// versions: they have nothing to do here, but look for it all the time.
const withoutControllers = "-node-ipam-controller,-node-route-controller,-service-lb-controller,-cloud-node-lifecycle-controller," +
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
	if p.options.Audit {
		args = append(args, "--audit-policy-file="+p.files.auditPolicy, "--audit-log-path="+filepath.Join(p.files.logs, "audit.log"))
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
