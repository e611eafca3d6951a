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
app.kubernetes.io/name: {{ include "timewheel.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
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
name: {{ .name }}
namespace: {{ .context.Release.Namespace }}
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

{{- define "timewheel.tokenSecret" -}}
{{- .Values.http.token.existingSecret | default (printf "%s-http" (include "timewheel.fullname" .)) }}
{{- end }}
