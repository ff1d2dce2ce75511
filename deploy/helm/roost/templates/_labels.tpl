{{- define "roost.selector" -}}
app.kubernetes.io/name: roost
app.kubernetes.io/component: operator
{{- end }}
{{- define "roost.labels" -}}
{{ include "roost.selector" . }}
app.kubernetes.io/part-of: roost
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "roost.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "roost.trainImage" -}}
{{- $repository := .Values.trainImage.repository | default (printf "%s-train" .Values.image.repository) -}}
{{ $repository }}:{{ .Values.trainImage.tag | default .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "roost.clusterRole" -}}
{{ ternary "roost-cluster" "roost-operator" (not (empty .Values.namespaces)) }}
{{- end }}
{{- define "roost.agentSelector" -}}
app.kubernetes.io/name: roost
app.kubernetes.io/component: agent
{{- end }}
{{- define "roost.agentLabels" -}}
{{ include "roost.agentSelector" . }}
app.kubernetes.io/part-of: roost
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
