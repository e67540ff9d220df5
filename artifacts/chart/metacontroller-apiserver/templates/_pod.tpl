{{- define "server.podTemplate" -}}
metadata:
  labels:
    {{- include "server.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  serviceAccountName: {{ include "server.serviceAccount" . | quote }}
  automountServiceAccountToken: true
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  # Longer than the shutdown: requests in flight (60 s), watches, closing the store, and with several replicas the delay before.
  terminationGracePeriodSeconds: 100
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
  - name: apiserver
    image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
    {{- with .Values.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    args:
    {{- include "server.arguments" . | nindent 4 }}
    env:
    # The server keeps its heap below nine tenths of this.
    - name: METACONTROLLER_MEMORY_LIMIT
      valueFrom:
        resourceFieldRef:
          containerName: apiserver
          resource: limits.memory
    {{- if eq .Values.store.type "external" }}
    - name: ETCD_SERVERS
      value: {{ join "," .Values.store.external.servers | quote }}
    {{- end }}
    {{- with .Values.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if eq .Values.store.type "definitions" }}
    ports:
    - name: metrics
      containerPort: 9999
      protocol: TCP
    - name: probes
      containerPort: 8081
      protocol: TCP
    livenessProbe:
      httpGet:
        path: /livez
        port: probes
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet:
        path: /readyz
        port: probes
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 3
    {{- else }}
    ports:
    - name: https
      containerPort: {{ .Values.port }}
      protocol: TCP
    # Starting again does not help where etcd does not answer; readiness says that.
    # An hour: nothing listens while the server waits for the kube-apiserver, and who is killed then comes back late.
    startupProbe:
      httpGet:
        path: /livez?exclude=etcd
        port: https
        scheme: HTTPS
      periodSeconds: 2
      failureThreshold: 1800
    livenessProbe:
      httpGet:
        path: /livez?exclude=etcd
        port: https
        scheme: HTTPS
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet:
        path: /readyz
        port: https
        scheme: HTTPS
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 3
    {{- end }}
    resources:
      {{- toYaml .Values.resources | nindent 6 }}
    securityContext:
      {{- toYaml .Values.securityContext | nindent 6 }}
    volumeMounts:
    {{- if ne .Values.store.type "definitions" }}
    - name: data
      mountPath: /var/lib/metacontroller-apiserver
    {{- end }}
    - name: tmp
      mountPath: /tmp
    {{- if include "server.encryptsStore" . }}
    - name: etcd
      mountPath: /etc/metacontroller/etcd
      readOnly: true
    {{- end }}
    {{- if .Values.certManager.enabled }}
    - name: serving
      mountPath: /etc/metacontroller/serving
      readOnly: true
    {{- end }}
    {{- with .Values.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
  - name: tmp
    emptyDir: {}
  {{- if eq .Values.store.type "external" }}
  - name: data
    emptyDir: {}
  {{- end }}
  {{- if include "server.encryptsStore" . }}
  - name: etcd
    secret:
      secretName: {{ .Values.store.external.secretName | quote }}
  {{- end }}
  {{- if .Values.certManager.enabled }}
  - name: serving
    secret:
      secretName: {{ include "server.fullname" . }}-serving
  {{- end }}
  {{- with .Values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- include "server.placement" . | nindent 2 }}
{{- end }}

{{- define "server.arguments" -}}
{{- if eq .Values.store.type "definitions" }}
- --api=definitions
{{- else }}
- --secure-port={{ .Values.port }}
- --data-dir=/var/lib/metacontroller-apiserver
- --register
{{- if .Values.rbac.create }}
- --register-owner={{ include "server.fullname" . }}
{{- end }}
{{- if ne (include "server.fullname" .) "metacontroller-apiserver" }}
- --register-service={{ include "server.fullname" . }}
{{- end }}
{{- if eq .Values.store.type "external" }}
- --etcd-servers=$(ETCD_SERVERS)
{{- end }}
{{- if include "server.encryptsStore" . }}
- --etcd-cafile=/etc/metacontroller/etcd/ca.crt
- --etcd-certfile=/etc/metacontroller/etcd/tls.crt
- --etcd-keyfile=/etc/metacontroller/etcd/tls.key
{{- end }}
{{- if .Values.certManager.enabled }}
- --tls-cert-file=/etc/metacontroller/serving/tls.crt
- --tls-private-key-file=/etc/metacontroller/serving/tls.key
- --register-ca-file=/etc/metacontroller/serving/ca.crt
{{- end }}
{{- if include "server.sharesAuthority" . }}
- --serving-cert-secret={{ include "server.namespace" . }}/{{ include "server.fullname" . }}-authority
{{- end }}
{{- if include "server.isReplicated" . }}
# Serve on until every kube-apiserver knows that this replica goes away.
- --shutdown-delay-duration=15s
- --shutdown-watch-termination-grace-period=10s
{{- end }}
{{- end }}
{{- range .Values.commandArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "server.placement" -}}
{{- if .Values.affinity }}
affinity:
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else if include "server.isReplicated" . }}
affinity:
  podAntiAffinity:
    # Preferred: a rollout brings one more replica before it takes one away.
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: {{ include "server.name" . | quote }}
{{- end }}
{{- if .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
{{- else if include "server.isReplicated" . }}
topologySpreadConstraints:
# Each Pod template for itself: during a rollout the Pods that go count no more.
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- topologyKey: {{ . }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: {{ include "server.name" $ | quote }}
{{- end }}
{{- end }}
{{- end }}
