{{- /* The image of extender and agent; with a digest that is what counts. */}}
{{- define "j10ce-qos.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}{{ with .Values.image.tag }}:{{ . }}{{ end }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end }}

{{- /* kube-scheduler's image: as it is said, else as the cluster's own pods have it. */}}
{{- define "kube-scheduler.image" -}}
{{- $found := .Values.schedulerImage -}}
{{- if not $found -}}
{{- range (lookup "v1" "Pod" "kube-system" "").items -}}
{{- if and (not $found) (eq (dig "metadata" "labels" "component" "" .) "kube-scheduler") -}}
{{- $found = (index .spec.containers 0).image -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail "schedulerImage: the cluster's own kube-scheduler cannot be seen here, so its image is not known: name one of the API server's version, with --set schedulerImage=..." -}}
{{- end -}}
{{- $found -}}
{{- end }}
