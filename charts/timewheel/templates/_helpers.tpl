{{/* Names and labels. */}}
{{- define "timewheel.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "timewheel.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "timewheel.selectorLabels" -}}
app.kubernetes.io/name: {{ include "timewheel.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "timewheel.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "timewheel.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: timewheel
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name, namespace, labels and annotations of an object. (dict "context" $ "name" … "component" … "labels" … "annotations" …) */}}
{{- define "timewheel.metadata" -}}
name: {{ .name | quote }}
namespace: {{ .context.Release.Namespace | quote }}
labels:
  {{- $labels := include "timewheel.labels" .context | fromYaml }}
  {{- with .component }}
  {{- $labels = merge (dict "app.kubernetes.io/component" .) $labels }}
  {{- end }}
  {{- merge (deepCopy (.labels | default dict)) $labels | toYaml | nindent 2 }}
{{- with merge (deepCopy (.annotations | default dict)) .context.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Labels of the replicas' pods, which the selectors want: the audit's and the test's pods have others. */}}
{{- define "timewheel.podSelectorLabels" -}}
{{ include "timewheel.selectorLabels" . }}
app.kubernetes.io/component: sidecar
{{- end }}

{{- define "timewheel.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "timewheel.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* An image's reference. (dict "context" $ "image" .Values.image) */}}
{{- define "timewheel.image" -}}
{{- $image := .image }}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .context.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* A quantity, such as 2Gi, in bytes. */}}
{{- define "timewheel.bytes" -}}
{{- $units := dict "m" 0.001 "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 }}
{{- $units = merge $units (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976) }}
{{- $number := regexFind "^[0-9.]+" . }}
{{- mulf (float64 $number) (get $units (trimPrefix $number .)) | int64 }}
{{- end }}

{{/* Whether the sidecar's data is in an emptyDir: "true" or nothing. */}}
{{- define "timewheel.isEmptyDir" -}}
{{- if or (ne .Values.mode "statefulset") (not .Values.persistence.enabled) }}true{{ end }}
{{- end }}

{{/*
Requests and limits; the limit of ephemeral storage, if none is set, has room for the container's emptyDirs, and 1 GiB for logs and
the like, or for what is requested, if that is more: beyond it the pod is evicted. Not in an application's pod: the limits that there
are in a pod are added up, and what all of its containers take is held against the sum. There each emptyDir has its own.
(dict "resources" … "emptyDirs" (list "2Gi" …) "isGuest" false)
*/}}
{{- define "timewheel.resources" -}}
{{- $resources := deepCopy .resources }}
{{- $limits := $resources.limits | default dict }}
{{- if not (or .isGuest (hasKey $limits "ephemeral-storage")) }}
{{- $bytes := 1073741824 }}
{{- range .emptyDirs }}
{{- $bytes = add $bytes (include "timewheel.bytes" .) }}
{{- end }}
{{- with get ($resources.requests | default dict) "ephemeral-storage" }}
{{- $bytes = max $bytes (include "timewheel.bytes" (toString .)) }}
{{- end }}
{{- $_ := set $limits "ephemeral-storage" (printf "%dMi" (div (add $bytes 1048575) 1048576)) }}
{{- $_ := set $resources "limits" $limits }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{/* The uid of the pods, if the image has no name for it: Spark's login wants one. */}}
{{- define "timewheel.unnamedUser" -}}
{{- $uid := .Values.securityContext.runAsUser | default .Values.podSecurityContext.runAsUser | default 0 | int64 }}
{{- if not (has $uid (list (int64 0) (int64 10001))) }}{{ $uid }}{{ end }}
{{- end }}

{{- define "timewheel.tokenSecret" -}}
{{- .Values.http.token.existingSecret | default (printf "%s-http" (include "timewheel.fullname" .)) }}
{{- end }}
