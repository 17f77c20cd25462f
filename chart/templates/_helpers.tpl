{{- define "rebalancer.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* 52 characters, since the CronJob's name is a prefix of its Jobs' names. */ -}}
{{- define "rebalancer.fullname" -}}
{{- $name := include "rebalancer.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 42 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 42 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 42 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Values that an upgrade keeps from an earlier chart (--reuse-values) have no kind. */ -}}
{{- define "rebalancer.kind" -}}
{{- default "CronJob" .Values.kind -}}
{{- end -}}

{{- /* Whether other clusters are observed, each with a kubeconfig: a pod for each in one Indexed Job. */ -}}
{{- define "rebalancer.isFleet" -}}
{{- not (empty (.Values.fleet).clusters) -}}
{{- end -}}

{{- /* Whether this cluster is observed from another: the release has an account that may read here, and no pod. */ -}}
{{- define "rebalancer.isMember" -}}
{{- not (empty ((.Values.fleet).member).enabled) -}}
{{- end -}}

{{- define "rebalancer.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- /* Cluster-scoped objects carry the namespace, so that two releases of one name live side by side. */ -}}
{{- define "rebalancer.clusterName" -}}
{{- printf "%s-%s" (include "rebalancer.namespace" .) (include "rebalancer.fullname" .) -}}
{{- end -}}

{{- /* Whether serve keeps what it must know of machines after a restart: a strategy adds or ends some, the policy has signals, or a step changes something at a cloud; where it is not ours, machineState.enabled. */ -}}
{{- define "rebalancer.keepsMachines" -}}
{{- $keeps := (.Values.machineState).enabled -}}
{{- if not .Values.existingPolicy -}}
{{- range $name, $given := .Values.strategies -}}
{{- $of := $given | default dict -}}
{{- $acts := has (default $name $of.strategy) (list "scale-in" "scale-out") -}}
{{- $keeps = or $keeps (and $acts (not (has (toString $of.mode) (list "off" "false")))) -}}
{{- end -}}
{{- $keeps = or $keeps (gt (len ((.Values.policy | default dict).signals | default dict)) 0) -}}
{{- range (((.Values.policy | default dict).interruption | default dict).steps | default list) -}}
{{- $step := . -}}
{{- if kindIs "map" . -}}{{- $step = .step -}}{{- end -}}
{{- $keeps = or $keeps (has (toString $step) (list "quarantine" "deregister")) -}}
{{- end -}}
{{- end -}}
{{- and (not (not $keeps)) (eq (include "rebalancer.kind" .) "Deployment") -}}
{{- end -}}

{{- /* What a run would refuse of these values, and no schema can say: strategies that undo each other, machines without a provider, or without a process that stays. */ -}}
{{- define "rebalancer.checkStrategies" -}}
{{- $packs := list -}}
{{- $spreads := list -}}
{{- $provided := not (empty (.Values.policy | default dict).provider) -}}
{{- $mode := include "rebalancer.mode" . -}}
{{- range $name, $given := merge (dict) (.Values.strategies | default dict) (dict "low-utilisation" (dict)) -}}
{{- $of := $given | default dict -}}
{{- $strategy := default $name $of.strategy -}}
{{- $enforces := and (eq $mode "enforce") (not (has (toString $of.mode) (list "off" "false" "observe"))) -}}
{{- $off := or (eq $mode "off") (has (toString $of.mode) (list "off" "false")) -}}
{{- if and (has $strategy (list "scale-in" "scale-out")) (not $off) (not $provided) -}}
{{- fail (printf "strategies.%s: %s needs policy.provider, who has the machines: policy: {provider: {aws: {tags: [k8s.io/cluster-autoscaler/enabled]}}}" $name $strategy) -}}
{{- end -}}
{{- if and (has $strategy (list "scale-in" "scale-out")) $enforces (ne (include "rebalancer.kind" $) "Deployment") -}}
{{- fail (printf "strategies.%s: %s acts on machines, which only a process that stays does: kind: Deployment; or strategies: {%s: {mode: observe}}" $name $strategy $name) -}}
{{- end -}}
{{- $one := dict "name" $name "selects" (not (empty $of.select)) -}}
{{- if and $enforces (eq $strategy "consolidation") -}}{{- $packs = append $packs $one -}}{{- end -}}
{{- if and $enforces (eq $strategy "low-utilisation") -}}{{- $spreads = append $spreads $one -}}{{- end -}}
{{- end -}}
{{- range $one := $packs -}}
{{- range $other := $spreads -}}
{{- if not (and $one.selects $other.selects) -}}
{{- fail (printf "%s spreads nodes that strategies.%s packs: add strategies: {%s: {mode: \"off\"}} (or observe), or let them select different nodes, such as select: {nodes: {pool: a}}" $other.name $one.name $other.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The same of the options of one strategy, and of the windows of the policy: (dict "name" NAME "of" OPTIONS), as they are merged. */ -}}
{{- define "rebalancer.checkOptions" -}}
{{- $name := .name -}}
{{- $of := .of -}}
{{- $strategy := default $name $of.strategy -}}
{{- $known := list "anti-affinity" "consolidation" "deletion-cost" "duplicates" "failed-pods" "leaving" "lifetime" "low-utilisation" "make-room" "node-affinity" "placement" "pod-affinity" "restarts" "scale-in" "scale-out" "slots" "stuck" "taints" "topology-spread" -}}
{{- if not (has $strategy (append $known "policy")) -}}
{{- fail (printf "strategies.%s: there is no such strategy; there are %s. One more of them is {%s: {strategy: NAME}}; of other distributions: extraStrategies" $name (join ", " $known) $name) -}}
{{- end -}}
{{- if and (eq $strategy "slots") (empty $of.free) -}}
{{- fail (printf "strategies.%s: slots needs free, with amounts of resources: {cpu: 4, memory: 16Gi}" $name) -}}
{{- end -}}
{{- if eq $strategy "placement" -}}
{{- if not (or $of.avoid $of.prefer $of.order) -}}
{{- fail (printf "strategies.%s: placement needs avoid, prefer or order, with labels of nodes" $name) -}}
{{- else if and $of.order (or $of.avoid $of.prefer) -}}
{{- fail (printf "strategies.%s: order takes the place of avoid and prefer: leave these out" $name) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $strategy "lifetime") (not (or $of.maxPodLifeTime $of.states $of.conditions $of.exitCodes)) -}}
{{- fail (printf "strategies.%s: lifetime needs maxPodLifeTime, states, conditions or exitCodes" $name) -}}
{{- end -}}
{{- if and (eq $strategy "low-utilisation") $of.under $of.over -}}
{{- if ne (keys $of.under | sortAlpha | toJson) (keys $of.over | sortAlpha | toJson) -}}
{{- fail (printf "strategies.%s: under and over must name the same resources" $name) -}}
{{- end -}}
{{- range $resource, $low := $of.under -}}
{{- if and (not $of.deviation) (gt (trimSuffix "%" (toString $low) | trim | float64) (trimSuffix "%" (toString (index $of.over $resource)) | trim | float64)) -}}
{{- fail (printf "strategies.%s: under.%s is above over.%s" $name $resource $resource) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $of.windows -}}
{{- include "rebalancer.checkZone" (dict "where" (printf "%s: windows" $name) "zone" .timeZone) -}}
{{- end -}}
{{- end -}}

{{- /* That a zone exists: (dict "where" WORDS "zone" ZONE). An unknown one is UTC to dateInZone, as every zone is where Helm finds no database of them. */ -}}
{{- define "rebalancer.checkZone" -}}
{{- $day := toDate "2006-01-02" "2026-01-15" -}}
{{- $zone := default "UTC" .zone -}}
{{- if eq (dateInZone "MST" $day "Asia/Tokyo") "JST" -}}
{{- if and (eq (dateInZone "MST" $day $zone) "UTC") (not (has (trimPrefix "Etc/" $zone) (list "UTC" "UCT" "Zulu" "Universal"))) -}}
{{- fail (printf "%s: %q is no time zone of the IANA database; write for example Asia/Tokyo, or UTC" .where $zone) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* That a schedule's numbers are in their ranges: (dict "where" WORDS "schedule" SCHEDULE). The API server refuses others in the middle of an upgrade. */ -}}
{{- define "rebalancer.checkSchedule" -}}
{{- $schedule := .schedule -}}
{{- $where := .where -}}
{{- $fields := regexSplit " +" $schedule -1 -}}
{{- range $i, $value := list "0*[0-5]?[0-9]" "0*(1?[0-9]|2[0-3])" "0*([1-9]|[12][0-9]|3[01])" "(0*([1-9]|1[0-2])|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)" "(0*[0-6]|sun|mon|tue|wed|thu|fri|sat)" -}}
{{- $one := printf "([*?]|%s(-%s)?)(/0*[1-9][0-9]*)?" $value $value -}}
{{- if not (or (hasPrefix "@" $schedule) (regexMatch (printf "(?i)^%s(,%s)*$" $one $one) (index $fields $i))) -}}
{{- fail (printf "%s: %q is no %s in %q; write for example \"*/2 * * * *\"" $where (index $fields $i) (index (list "minute (0-59)" "hour (0-23)" "day (1-31)" "month (1-12)" "weekday (0-6, Sunday is 0)") $i) $schedule) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "rebalancer.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rebalancer.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "rebalancer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rebalancer.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "rebalancer.labels" -}}
{{- $own := fromYaml (include "rebalancer.selectorLabels" .) -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- toYaml (merge $own .Values.commonLabels) -}}
{{- end -}}

{{- /* metadata: (dict "root" $ "name" NAME "namespace" NAMESPACE "cluster" true "labels" MAP "annotations" MAP) */ -}}
{{- define "rebalancer.metadata" -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ .namespace | default (include "rebalancer.namespace" .root) | quote }}
{{- end }}
labels:
  {{- toYaml (merge (fromYaml (include "rebalancer.labels" .root)) (.labels | default dict)) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "rebalancer.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* YAML 1.1 reads an unquoted off as false. */ -}}
{{- define "rebalancer.mode" -}}
{{- $mode := ternary "off" (toString .Values.mode) (eq (toString .Values.mode) "false") -}}
{{- $observed := or (eq (include "rebalancer.isFleet" .) "true") (eq (include "rebalancer.isMember" .) "true") -}}
{{- ternary "observe" $mode (and $observed (ne $mode "off")) -}}
{{- end -}}

{{- /* A policy's file, in which off stays off. */ -}}
{{- define "rebalancer.policyFile" -}}
{{- $file := . -}}
{{- range $key := list "mode" "steer" -}}
{{- if eq (toString (index $file $key)) "false" -}}{{- $_ := set $file $key "off" -}}{{- end -}}
{{- end -}}
{{- toYaml $file -}}
{{- end -}}

{{- define "rebalancer.policyName" -}}
{{- default (printf "%s-policy" (include "rebalancer.fullname" .)) .Values.existingPolicy -}}
{{- end -}}

{{- /* The job of the metrics: that of the Service of a Deployment, which Prometheus names after it, or the Pushgateway's. */ -}}
{{- define "rebalancer.job" -}}
{{- $scraped := and (eq (include "rebalancer.kind" .) "Deployment") ((.Values.serve).service).enabled -}}
{{- (.Values.metrics).job | default (ternary (include "rebalancer.fullname" .) "kube-rebalancer" (not (empty $scraped))) -}}
{{- end -}}

{{- /* NAMESPACE/NAME of the Lease; the memory is NAMESPACE/NAME-memory. */ -}}
{{- define "rebalancer.state" -}}
{{- default (printf "%s/%s" (include "rebalancer.namespace" .) (include "rebalancer.fullname" .)) .Values.sharedState -}}
{{- end -}}

{{- define "rebalancer.stateNamespace" -}}
{{- (splitn "/" 2 (include "rebalancer.state" .))._0 -}}
{{- end -}}

{{- define "rebalancer.stateName" -}}
{{- (splitn "/" 2 (include "rebalancer.state" .))._1 -}}
{{- end -}}

{{/* Where an alert is explained (dict "root" $ "alert" NAME); empty without metrics.rules.runbookUrl. */}}
{{- define "rebalancer.runbook" -}}
{{- with ((.root.Values.metrics).rules).runbookUrl -}}
runbook_url: {{ printf "%s#%s" . (lower $.alert) | quote }}
{{- end }}
{{- end }}
