{{/* What the sidecar is told: a settings file, and the variables that differ from pod to pod or are secret. */}}

{{/* Refuses what the schema takes, where it could not say what to do instead; nor may it print a secret. */}}
{{- define "timewheel.refused" -}}
{{- $instead := dict
  "bootstrap_servers" "set kafka.bootstrapServers"
  "kafka" "set kafka.options, kafka.tls and kafka.sasl"
  "instance_id" "it is the pod's namespace and name"
  "membership" "the mode decides it, and sidecar.membership"
  "data_dir" "it is where the volume is mounted"
  "http_address" "set http.host and http.port"
  "http_token" "put it into a Secret, and set http.token.existingSecret"
  "log_format" "logs are JSON"
}}
{{- range $name, $what := $instead }}
{{- if hasKey $.Values.config $name }}
{{- fail (printf "config.%s is no value of this chart: %s" $name $what) }}
{{- end }}
{{- end }}
{{- if regexMatch "^(?i:localhost|127\\..*|\\[::1\\])$" .Values.http.host }}
{{- fail (printf "http.host is %s, where no probe reaches it, so that the container is restarted for ever: leave it at 0.0.0.0, or at [::] where there is only IPv6" .Values.http.host) }}
{{- end }}
{{- range $name, $value := .Values.kafka.options }}
{{- if and (regexMatch "(?i)passw|passphrase|secret|jaas|key\\.pem|oauthbearer\\.config" $name) (not (hasPrefix "${" ($value | default "${" | toString))) }}
{{- fail (printf "kafka.options holds %s in the clear: put it into a Secret, and name that in kafka.sasl.existingSecret, or write ${env:NAME} or ${dir:PATH:FILE} and see to extraEnv or extraVolumes" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* librdkafka's options; secrets are named, and read from their files when the process starts. */}}
{{- define "timewheel.kafkaOptions" -}}
{{- $tls := .Values.kafka.tls }}
{{- $sasl := .Values.kafka.sasl }}
{{- $options := dict }}
{{- if or $tls.enabled $sasl.enabled }}
{{- $_ := set $options "security.protocol" (printf "%s%s" (ternary "SASL_" "" $sasl.enabled) (ternary "SSL" "PLAINTEXT" $tls.enabled)) }}
{{- end }}
{{- if $tls.enabled }}
{{- if $tls.ca.existingSecret }}
{{- $_ := set $options "ssl.ca.location" (printf "/etc/timewheel/kafka-ca/%s" $tls.ca.key) }}
{{- end }}
{{- if $tls.client.existingSecret }}
{{- $_ := set $options "ssl.certificate.location" (printf "/etc/timewheel/kafka-client/%s" $tls.client.certKey) }}
{{- $_ := set $options "ssl.key.location" (printf "/etc/timewheel/kafka-client/%s" $tls.client.keyKey) }}
{{- end }}
{{- end }}
{{- if $sasl.enabled }}
{{- if not $sasl.existingSecret }}
{{- fail "kafka.sasl.enabled needs kafka.sasl.existingSecret: the name of a Secret with the password" }}
{{- end }}
{{- $_ := set $options "sasl.mechanisms" $sasl.mechanism }}
{{- $_ := set $options "sasl.username" ($sasl.username | default (printf "${dir:/etc/timewheel/kafka-sasl:%s}" $sasl.usernameKey)) }}
{{- $_ := set $options "sasl.password" (printf "${dir:/etc/timewheel/kafka-sasl:%s}" $sasl.passwordKey) }}
{{- end }}
{{- merge (deepCopy .Values.kafka.options) $options | toYaml }}
{{- end }}

{{/*
What a store may take of an emptyDir, with every partition on one pod, and once in each of its workers: a worker keeps the files of a
partition that another has by now. A pod that takes more is evicted.
*/}}
{{- define "timewheel.emptyDirQuota" -}}
{{- if and (eq (toString .Values.config.create_topics) "false") (not (hasKey .Values.config "partitions")) }}
{{- fail "config.create_topics is false: set config.partitions to the number that the wheel topic has, or config.disk_quota_bytes, for each of them has a part of persistence.emptyDirSizeLimit" }}
{{- end }}
{{- $partitions := int64 (.Values.config.partitions | default 1) }}
{{- $workers := int64 (.Values.config.workers | default 1) }}
{{- $stores := mul $partitions $workers }}
{{- $quota := div (mul 9 (include "timewheel.bytes" .Values.persistence.emptyDirSizeLimit | int64)) (mul 10 $stores) }}
{{- $least := mul 2 (add (mul 32 (int64 (.Values.config.slots_total | default 604800))) 83886080) }}
{{- if lt $quota $least }}
{{- fail (printf "persistence.emptyDirSizeLimit is too small: each of %d wheel partitions needs %d bytes at least in each of %d workers, so set it to %dMi or more" $partitions $least $workers (add 1 (div (mul $least $stores 10) 9437184))) }}
{{- end }}
{{- $quota }}
{{- end }}

{{/* The settings file. */}}
{{- define "timewheel.config" -}}
{{- include "timewheel.refused" . }}
{{- $own := dict "bootstrap_servers" .Values.kafka.bootstrapServers "log_format" "json" }}
{{- $_ := set $own "membership" (ternary "static" .Values.sidecar.membership (eq .Values.mode "statefulset")) }}
{{- if eq .Values.mode "sidecar" }}
{{- $_ := set $own "start_timeout" "0s" }}
{{- end }}
{{- with include "timewheel.kafkaOptions" . | fromYaml }}
{{- $_ := set $own "kafka" . }}
{{- end }}
{{- if and (include "timewheel.isEmptyDir" .) (not (hasKey .Values.config "disk_quota_bytes")) }}
{{- $_ := set $own "disk_quota_bytes" (include "timewheel.emptyDirQuota" . | int64) }}
{{- end }}
{{- merge (deepCopy .Values.config) $own | toYaml }}
{{- end }}

{{/* Environment of everything that runs `timewheel` as this release. */}}
{{- define "timewheel.env" -}}
- name: TIMEWHEEL_HTTP_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "timewheel.tokenSecret" . | quote }}
      key: {{ .Values.http.token.key | quote }}
# Not an argument: so that it holds for commands by `kubectl exec`, too.
- name: TIMEWHEEL_CONFIG
  value: /etc/timewheel/config/timewheel.yaml
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Mounts of everything that runs `timewheel` as this release. */}}
{{- define "timewheel.configMounts" -}}
- name: timewheel-config
  mountPath: /etc/timewheel/config
  readOnly: true
{{- if and .Values.kafka.tls.enabled .Values.kafka.tls.ca.existingSecret }}
- name: timewheel-kafka-ca
  mountPath: /etc/timewheel/kafka-ca
  readOnly: true
{{- end }}
{{- if and .Values.kafka.tls.enabled .Values.kafka.tls.client.existingSecret }}
- name: timewheel-kafka-client
  mountPath: /etc/timewheel/kafka-client
  readOnly: true
{{- end }}
{{- if .Values.kafka.sasl.enabled }}
- name: timewheel-kafka-sasl
  mountPath: /etc/timewheel/kafka-sasl
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "timewheel.configVolumes" -}}
- name: timewheel-config
  configMap:
    name: {{ include "timewheel.fullname" . | quote }}
{{- if .Values.kafka.tls.enabled }}
{{- with .Values.kafka.tls.ca.existingSecret }}
- name: timewheel-kafka-ca
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- with .Values.kafka.tls.client.existingSecret }}
- name: timewheel-kafka-client
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- if .Values.kafka.sasl.enabled }}
- name: timewheel-kafka-sasl
  secret:
    secretName: {{ .Values.kafka.sasl.existingSecret | quote }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
