{{- /* The pod of a run: (dict "root" $ "args" LIST "command" LIST "quiet" BOOL "serves" BOOL); quiet: no metrics, no
notice; serves: one that goes on and answers; "serviceAccount" and "claim" NAME: of a pod that keeps files at /recorded; "redactKeySecret" NAME: of the key that it redacts names with; "fleet" BOOL: it runs on one cluster of several */ -}}
{{- define "rebalancer.podTemplate" -}}
{{- $root := .root -}}
{{- with $root.Values -}}
metadata:
  labels:
    {{- $component := ternary (dict "app.kubernetes.io/component" "serve") (dict) (default false $.serves) }}
    {{- toYaml (merge $component (fromYaml (include "rebalancer.labels" $root)) .podLabels) | nindent 4 }}
  {{- with merge (dict) .podAnnotations .commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: {{ ternary "Always" "Never" (default false $.serves) }}
  serviceAccountName: {{ $.serviceAccount | default (include "rebalancer.serviceAccount" $root) | quote }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
  {{- if $.fleet }}
  activeDeadlineSeconds: {{ .activeDeadlineSeconds }}
  {{- end }}
  {{- with .imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .schedulerName }}
  schedulerName: {{ . | quote }}
  {{- end }}
  {{- with .runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with .nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .dnsPolicy }}
  dnsPolicy: {{ . | quote }}
  {{- end }}
  {{- with .dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .hostNetwork }}
  hostNetwork: true
  {{- end }}
  securityContext:
    {{- /* A new volume belongs to root. Without a group of its own the pod gets one from the platform. */}}
    {{- $group := ternary (dict "fsGroup" .podSecurityContext.runAsGroup) (dict) (and (not (empty $.claim)) (not (empty .podSecurityContext.runAsGroup))) }}
    {{- toYaml (merge (dict) .podSecurityContext $group) | nindent 4 }}
  containers:
    - name: rebalancer
      image: {{ include "rebalancer.image" $root | quote }}
      imagePullPolicy: {{ .image.pullPolicy }}
      {{- with $.command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      args:
        {{- toYaml $.args | nindent 8 }}
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        {{- if and ((.metrics).push).secretName (not $.quiet) }}
        - name: REBALANCER_METRICS_PUSH
          valueFrom: {secretKeyRef: {name: {{ ((.metrics).push).secretName | quote }}, key: url}}
        {{- end }}
        {{- if and (.notify).secretName (not $.quiet) }}
        - name: REBALANCER_NOTIFY
          valueFrom: {secretKeyRef: {name: {{ (.notify).secretName | quote }}, key: url}}
        {{- end }}
        {{- with .extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if $.serves }}
      ports:
        - {name: http, containerPort: {{ .serve.port }}}
      # A process that reads a big cluster or stands by is well: only one that hangs, or hears nothing, is not.
      livenessProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 20
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
      startupProbe:
        httpGet: {path: /healthz, port: http}
        periodSeconds: 2
        failureThreshold: 30
      {{- end }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        {{- toYaml .securityContext | nindent 8 }}
      volumeMounts:
        - {name: policy, mountPath: /etc/rebalancer/policy, readOnly: true}
        {{- if $.fleet }}
        - {name: fleet, mountPath: /etc/rebalancer/fleet, readOnly: true}
        {{- if .fleet.kubeconfigVolume }}
        - {name: kubeconfigs, mountPath: /etc/rebalancer/kubeconfigs, readOnly: true}
        {{- else }}
        # Of the pod's own cluster only.
        - {name: kubeconfigs, mountPath: /etc/rebalancer/kubeconfigs, subPathExpr: $(JOB_COMPLETION_INDEX), readOnly: true}
        {{- end }}
        {{- end }}
        {{- if $.claim }}
        - {name: recorded, mountPath: /recorded}
        {{- end }}
        {{- if $.fleet }}
        - {name: scratch, mountPath: /tmp}
        {{- end }}
        {{- if $.redactKeySecret }}
        - {name: redact, mountPath: /redact, readOnly: true}
        {{- end }}
        {{- if (.usage).secretName }}
        - {name: usage, mountPath: /var/run/secrets/usage, readOnly: true}
        {{- end }}
        {{- with .extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: policy
      configMap: {name: {{ include "rebalancer.policyName" $root | quote }}}
    {{- if $.fleet }}
    - name: fleet
      configMap: {name: {{ printf "%s-fleet" (include "rebalancer.fullname" $root) | quote }}}
    - name: kubeconfigs
      {{- if .fleet.kubeconfigVolume }}
      {{- toYaml .fleet.kubeconfigVolume | nindent 6 }}
      {{- else }}
      # Optional: a Secret that is not there keeps its own cluster from its run, and no other.
      projected:
        sources:
          {{- range $index, $cluster := .fleet.clusters }}
          - secret:
              name: {{ required (printf "fleet.clusters: %s needs secretName, a Secret with its kubeconfig, or fleet.kubeconfigVolume" $cluster.name) $cluster.secretName | quote }}
              optional: true
              items:
                - {key: {{ $cluster.key | default "kubeconfig" | quote }}, path: {{ printf "%d/%s" $index $cluster.name | quote }}}
          {{- end }}
      {{- end }}
    {{- end }}
    {{- with $.claim }}
    - name: recorded
      persistentVolumeClaim: {claimName: {{ . | quote }}}
    {{- end }}
    {{- if $.fleet }}
    - name: scratch
      {{- /* The library writes certificates and keys of a kubeconfig to files: not to the node's disk. */}}
      emptyDir: {{ ternary "{medium: Memory, sizeLimit: 1Mi}" "{}" (default false $.fleet) }}
    {{- end }}
    {{- with $.redactKeySecret }}
    - name: redact
      secret:
        secretName: {{ . | quote }}
        items:
          - {key: key, path: key}
    {{- end }}
    {{- with (.usage).secretName }}
    - name: usage
      secret: {secretName: {{ . | quote }}}
    {{- end }}
    {{- with .extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{- /* What a CronJob's run gets. */ -}}
{{- define "rebalancer.runArgs" -}}
{{- if eq (include "rebalancer.isFleet" .) "true" }}
- fleet
- observe
- --clusters=/etc/rebalancer/fleet/fleet.yaml
- --kubeconfigs=/etc/rebalancer/kubeconfigs
- --status={{ include "rebalancer.namespace" . }}/{{ include "rebalancer.fullname" . }}-fleet-status
{{- else }}
- run
- --lease={{ include "rebalancer.state" . }}
{{- end }}
{{ include "rebalancer.everyRunArgs" . }}
{{- end -}}

{{- /* What a Deployment's process gets. Without the right to act it may not write the Lease either. */ -}}
{{- define "rebalancer.serveArgs" -}}
- serve
- --every={{ .Values.serve.every }}
{{- if and .Values.timeZone (contains " " .Values.serve.every) }}
- --time-zone={{ .Values.timeZone }}
{{- end }}
- --listen=:{{ .Values.serve.port }}
{{- if .Values.serve.showReport }}
- --show-report
{{- end }}
{{- if .Values.serve.showPage }}
- --show-page
{{- end }}
{{- range .Values.serve.pageHosts }}
- --page-host={{ . }}
{{- end }}
{{- if eq (include "rebalancer.mode" .) "enforce" }}
- --lease={{ include "rebalancer.state" . }}
{{- end }}
{{- if eq (include "rebalancer.keepsMachines" .) "true" }}
- --machine-state={{ include "rebalancer.namespace" . }}/{{ include "rebalancer.fullname" . }}-machines
{{- end }}
{{ include "rebalancer.everyRunArgs" . }}
{{- end -}}

{{- /* What every run gets. */ -}}
{{- define "rebalancer.everyRunArgs" -}}
- --policy=/etc/rebalancer/policy
{{- if ne (include "rebalancer.isFleet" .) "true" }}
- --yes
{{- $mode := include "rebalancer.mode" . }}
{{- /* A policy that says enforce where the release may only look would fail at each run. */ -}}
{{- if and .Values.existingPolicy (ne $mode "enforce") }}
- --mode={{ $mode }}
{{- end }}
- --memory={{ include "rebalancer.state" . }}-memory
{{- end }}
{{- with .Values.namespace }}
- --namespace={{ . }}
{{- end }}
- --deadline={{ .Values.runDeadlineSeconds }}
- --output={{ .Values.output }}
- --log-format={{ .Values.logFormat }}
{{- if and ((.Values.metrics).push).url (not ((.Values.metrics).push).secretName) }}
- --metrics-push={{ trimSuffix "/" ((.Values.metrics).push).url }}/metrics/job/{{ include "rebalancer.job" . }}
{{- end }}
{{- with (.Values.metrics).file }}
- --metrics-file={{ . }}
{{- end }}
{{- if (.Values.notify).secretName }}
- --notify-template={{ .Values.notify.template }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The spec of a run's Job: (dict "root" $), with what its pod takes. Of a fleet it has an index for each cluster, and each fails alone. */ -}}
{{- define "rebalancer.jobSpec" -}}
{{- if .fleet }}
{{- $clusters := len .root.Values.fleet.clusters }}
{{- $atOnce := min $clusters (int .root.Values.fleet.maxClustersAtOnce) }}
completionMode: Indexed
completions: {{ $clusters }}
parallelism: {{ $atOnce }}
backoffLimitPerIndex: 0
activeDeadlineSeconds: {{ mul (div (sub (add $clusters $atOnce) 1) $atOnce) (int .root.Values.activeDeadlineSeconds) }}
{{- else }}
backoffLimit: 0
activeDeadlineSeconds: {{ .root.Values.activeDeadlineSeconds }}
{{- end }}
{{- if not (kindIs "invalid" .ttl) }}
ttlSecondsAfterFinished: {{ .ttl }}
{{- end }}
template:
  {{- include "rebalancer.podTemplate" . | nindent 2 }}
{{- end -}}
