{{/*
A native sidecar for the pods of an application's chart that has this one as a dependency, with `mode: sidecar`:

    spec:
      initContainers:
        {{- include "timewheel.sidecar" .Subcharts.timewheel | nindent 8 }}
      volumes:
        {{- include "timewheel.sidecar.volumes" .Subcharts.timewheel | nindent 8 }}

The application starts once it is ready (`sidecar.startupPath`), and it stops after the application.
*/}}
{{- define "timewheel.sidecar" -}}
{{- if ne .Values.mode "sidecar" }}
{{- fail "the template timewheel.sidecar wants the value timewheel.mode to be sidecar: else a StatefulSet runs beside it" }}
{{- end -}}
- {{ include "timewheel.container" (dict "context" . "portName" "timewheel" "startupPath" .Values.sidecar.startupPath "readinessPath" .Values.sidecar.readinessPath "restartPolicy" "Always") | nindent 2 | trim }}
{{- end }}

{{- define "timewheel.sidecar.volumes" -}}
- name: timewheel-data
  emptyDir:
    sizeLimit: {{ .Values.persistence.emptyDirSizeLimit }}
{{ include "timewheel.tmpVolume" . }}
{{ include "timewheel.configVolumes" . }}
{{- end }}
