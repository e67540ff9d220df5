{{- define "server.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "server.fullname" -}}
{{ default .Chart.Name .Values.fullnameOverride }}
{{- end }}

{{- define "server.namespace" -}}
{{ default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "server.serviceAccount" -}}
{{- default (include "server.fullname" .) .Values.serviceAccount.name -}}
{{- end }}

{{- define "server.labels" -}}
app.kubernetes.io/name: {{ include "server.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Each shape has Pods of its own: should both run, requests reach those of the one that was installed last. */}}
{{- define "server.selector" -}}
app.kubernetes.io/name: {{ include "server.name" . | quote }}
metacontroller.k8s.io/store: {{ .Values.store.type }}
{{- end }}

{{- define "server.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "server.serviceAccount" . | quote }}
  namespace: {{ include "server.namespace" . | quote }}
{{- end }}

{{- /* Pods that come and go have one authority, from cert-manager or in a Secret. */}}
{{- define "server.sharesAuthority" -}}
{{- if and (eq .Values.store.type "external") (not .Values.certManager.enabled) }}true{{ end -}}
{{- end }}

{{- define "server.isReplicated" -}}
{{- if and (ne .Values.store.type "embedded") (gt (int .Values.replicas) 1) }}true{{ end -}}
{{- end }}

{{- /* Addresses that begin with http:// have no use for certificates; refusals.yaml has them all of one kind. */}}
{{- define "server.encryptsStore" -}}
{{- if and (eq .Values.store.type "external") (hasPrefix "https://" (first .Values.store.external.servers)) }}true{{ end -}}
{{- end }}
