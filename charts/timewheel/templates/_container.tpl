{{/* The sidecar's container, the same in both modes. (dict "context" $ "portName" … "startupPath" … "readinessPath" … "restartPolicy" …) */}}
{{- define "timewheel.container" -}}
{{- $ := .context -}}
{{- $portName := .portName -}}
name: timewheel
image: {{ include "timewheel.image" (dict "context" $ "image" $.Values.image) }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
{{- with .restartPolicy }}
restartPolicy: {{ . }}
{{- end }}
{{- if $.Values.maintenance }}
# Not `sleep` alone: as the first process of a container it would not hear SIGTERM.
command: [sh, -c, trap exit TERM; sleep infinity & wait]
{{- else }}
args:
  - run
  - --data-dir=/var/lib/timewheel
{{- end }}
env:
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
  # The identity: static members find their partitions again by it, and no two share transactional ids.
  - name: TIMEWHEEL_INSTANCE_ID
    value: $(POD_NAMESPACE).$(POD_NAME)
  # Not an argument: commands in the pod find the API by it, too.
  - name: TIMEWHEEL_HTTP_ADDRESS
    value: "{{ $.Values.http.host }}:{{ $.Values.http.port }}"
  {{- include "timewheel.env" $ | nindent 2 }}
ports:
  - name: {{ .portName }}
    containerPort: {{ $.Values.http.port }}
    protocol: TCP
{{- if not $.Values.maintenance }}
startupProbe:
  httpGet:
    path: {{ .startupPath }}
    port: {{ .portName }}
  {{- toYaml $.Values.startupProbe | nindent 2 }}
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ .portName }}
  {{- toYaml $.Values.livenessProbe | nindent 2 }}
{{- with .readinessPath }}
readinessProbe:
  httpGet:
    path: {{ . }}
    port: {{ $portName }}
  {{- toYaml $.Values.readinessProbe | nindent 2 }}
{{- end }}
{{- end }}
resources:
  {{- $emptyDirs := list (include "timewheel.tmpSizeLimit" $) }}
  {{- if include "timewheel.isEmptyDir" $ }}
  {{- $emptyDirs = append $emptyDirs $.Values.persistence.emptyDirSizeLimit }}
  {{- end }}
  {{- include "timewheel.resources" (dict "resources" $.Values.resources "emptyDirs" $emptyDirs "isGuest" (ne $.Values.mode "statefulset")) | nindent 2 }}
securityContext:
  {{- toYaml $.Values.securityContext | nindent 2 }}
volumeMounts:
  - name: timewheel-data
    mountPath: /var/lib/timewheel
  - name: timewheel-tmp
    mountPath: /tmp
  {{- include "timewheel.configMounts" $ | nindent 2 }}
{{- end }}

{{- define "timewheel.tmpSizeLimit" -}}64Mi{{- end }}

{{/* What it writes to outside its data. */}}
{{- define "timewheel.tmpVolume" -}}
- name: timewheel-tmp
  emptyDir:
    sizeLimit: {{ include "timewheel.tmpSizeLimit" . }}
{{- end }}
