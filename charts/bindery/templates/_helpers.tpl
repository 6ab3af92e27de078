{{- define "bindery.labels" -}}
app.kubernetes.io/name: bindery
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Takes (dict "root" $ "component" "scheduler"), here and below; "suffix" tells the schedulers of
several node pools apart. */}}
{{- define "bindery.selector" -}}
app.kubernetes.io/name: bindery
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}{{ .suffix | default "" }}
{{- end }}

{{/* The name of the objects of a component. */}}
{{- define "bindery.name" -}}
{{ .root.Release.Name }}-{{ .component }}{{ .suffix | default "" }}
{{- end }}

{{/* The schedulers of the release as JSON: the suffix of their names, and their values. One for each of
nodePools, whose values come before those of scheduler; without nodePools, that of scheduler. */}}
{{- define "bindery.schedulers" -}}
{{- $shared := .Values.scheduler }}
{{- $found := list }}
{{- $names := list }}
{{- if and .Values.nodePools $shared.configuration.nodePool }}
{{- fail "set either nodePools or scheduler.configuration.nodePool: nodePools names the pools of all schedulers" }}
{{- end }}
{{- range .Values.nodePools }}
{{- if has .name $names }}{{ fail (printf "nodePools has the pool %q twice" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- $values := mergeOverwrite (deepCopy $shared) (deepCopy (omit . "name")) }}
{{- $suffix := "" }}
{{- if .name }}
{{- $suffix = printf "-%s" .name }}
{{- $_ := set $values.configuration "nodePool" .name }}
{{- end }}
{{- $found = append $found (dict "suffix" $suffix "values" $values) }}
{{- end }}
{{- $found | default (list (dict "suffix" "" "values" $shared)) | toJson }}
{{- end }}

{{/* The ServiceAccount of a component, and the binding of its two roles to it. */}}
{{- define "bindery.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .root.Release.Name }}-{{ .component }}
subjects:
  - kind: ServiceAccount
    name: {{ .root.Release.Name }}-{{ .component }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The names of the plugins that a component runs, as JSON; its default list stands here again. */}}
{{- define "bindery.plugins" -}}
{{- $default := list "volumes" "dra" "gpusharing" "hami" "numa" "topology" "podaffinity" "topologyspread" }}
{{- $given := (index .root.Values .component).configuration.plugins }}
{{- $names := list }}
{{- range $given }}{{ $names = append $names .name }}{{ end }}
{{- ternary $default $names (kindIs "invalid" $given) | toJson }}
{{- end }}

{{/* The name of a component's Lease: one binder leads in a cluster, one scheduler in a node pool. */}}
{{- define "bindery.lease" -}}
{{- $pool := (index .root.Values .component).configuration.nodePool | default "" }}
{{- printf "bindery-%s%s" .component (ternary "" (printf "-%s" $pool) (empty $pool)) }}
{{- end }}

{{/* The names of all Leases of the release, as JSON. */}}
{{- define "bindery.leaseNames" -}}
{{- $names := list "bindery-binder" "bindery-grouper" }}
{{- range include "bindery.schedulers" . | fromJsonArray }}
{{- $pool := .values.configuration.nodePool | default "" }}
{{- $names = append $names (printf "bindery-scheduler%s" (ternary "" (printf "-%s" $pool) (empty $pool))) }}
{{- end }}
{{- $names | toJson }}
{{- end }}

{{/* The ConfigMaps in which the schedulers keep past usage and the history, as JSON. Takes
(dict "root" $ "recorded" false); "recorded": only those that exist. */}}
{{- define "bindery.records" -}}
{{- $names := list }}
{{- $recorded := .recorded }}
{{- $shown := .root.Values.dashboard.enabled }}
{{- range include "bindery.schedulers" .root | fromJsonArray }}
{{- $pool := .values.configuration.nodePool | default "" }}
{{- $suffix := ternary "" (printf "-%s" $pool) (empty $pool) }}
{{- if or (not $recorded) (eq (dig "usage" "source" "none" .values.configuration) "record") }}
{{- $names = append $names (printf "bindery-usage%s" $suffix) }}
{{- end }}
{{- if or (not $recorded) (dig "history" "enabled" $shown .values.configuration) }}
{{- $names = append $names (printf "bindery-history%s" $suffix) }}
{{- end }}
{{- end }}
{{- $names | toJson }}
{{- end }}

{{/* Leader election. The Lease is made here and belongs to the release, so that helm refuses a second
release with the same binder or node pool and names the first. Its name and namespace do not depend on the
release. */}}
{{- define "bindery.leases" -}}
{{- $namespace := .root.Values.leaseNamespace }}
{{- $name := include "bindery.lease" . }}
{{- $there := lookup "coordination.k8s.io/v1" "Lease" $namespace $name }}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $there }}
{{- $of := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $there }}
{{- if and $owner (or (ne $owner .root.Release.Name) (ne $of .root.Release.Namespace)) }}
{{- $mend := "set binder.enabled=false: one binder serves the whole cluster" }}
{{- if eq .component "grouper" }}
{{- $mend = "set grouper.enabled=false: one grouper serves the whole cluster" }}
{{- else if eq .component "scheduler" }}
{{- $mend = "set nodePools, or scheduler.configuration.nodePool, to pools that no other release has" }}
{{- end }}
{{- fail (printf "release %s in namespace %s has this cluster's %s already; %s" $owner $of $name $mend) }}
{{- end }}
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: {{ include "bindery.lease" . }}
  namespace: {{ $namespace }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "bindery.lease" . }}
  namespace: {{ $namespace }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ include "bindery.lease" . }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "bindery.lease" . }}
  namespace: {{ $namespace }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "bindery.lease" . }}
subjects:
  - kind: ServiceAccount
    name: {{ .root.Release.Name }}-{{ .component }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* Refuses plugins that there are not, and arguments that they do not have: the process would end at its
start. */}}
{{- define "bindery.checkPlugins" -}}
{{- $names := .root.Files.Get "files/known-names.yaml" | fromYaml }}
{{- $known := index $names.plugins .component }}
{{- $kinds := dict "string" (list "string") "boolean" (list "bool") "null" (list "invalid")
  "number" (list "float64" "int64" "int") "integer" (list "float64" "int64" "int")
  "object" (list "map") "array" (list "slice") }}
{{- $at := printf "%s.configuration.plugins" .component }}
{{- range $index, $plugin := (index .root.Values .component).configuration.plugins }}
{{- if hasKey $known $plugin.name }}
{{- $arguments := index $known $plugin.name }}
{{- range $key, $value := $plugin.arguments }}
{{- if not (hasKey $arguments $key) }}
{{- $there := keys $arguments | sortAlpha | join ", " | default "none" }}
{{- fail (printf "%s[%d]: the plugin %s has no argument %s; it has: %s" $at $index $plugin.name $key $there) }}
{{- end }}
{{- $argument := index $arguments $key }}
{{- $allowed := list }}
{{- range $argument.types }}{{ $allowed = concat $allowed (index $kinds .) }}{{ end }}
{{- if not (has (kindOf $value) $allowed) }}
{{- fail (printf "%s[%d].arguments.%s: this must be of type %s" $at $index $key (join " or " $argument.types)) }}
{{- end }}
{{- if and $argument.enum $value (not (has $value $argument.enum)) }}
{{- fail (printf "%s[%d].arguments.%s: %v is none of: %s" $at $index $key $value (join ", " $argument.enum)) }}
{{- end }}
{{- end }}
{{- else if not (has $plugin.name $.root.Values.ownPlugins) }}
{{- $plain := regexReplaceAll "[^a-z0-9]" (lower $plugin.name) "" }}
{{- $meant := get $names.formerNames $plain | default $plain }}
{{- if hasKey $known $meant }}
{{- fail (printf "%s[%d]: there is no plugin %s; did you mean %s?" $at $index $plugin.name $meant) }}
{{- end }}
{{- $there := keys $known | sortAlpha | join ", " }}
{{- fail (printf "%s[%d]: there is no plugin %s; shipped are: %s. List plugins of an image of your own in ownPlugins" $at $index $plugin.name $there) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses row files that are not there, or that the grouper could not read. */}}
{{- define "bindery.checkRowFiles" -}}
{{- $known := .root.Files.Get "files/known-names.yaml" | fromYaml }}
{{- $files := .root.Values.grouper.rowFiles }}
{{- range .root.Values.grouper.configuration.rowFiles }}
{{- if not (or (isAbs .) (hasKey $files .)) }}
{{- fail (printf "grouper.configuration.rowFiles: there is no file %s in grouper.rowFiles" .) }}
{{- end }}
{{- end }}
{{- range $name, $text := $files }}
{{- $at := printf "grouper.rowFiles.%s" $name }}
{{- range regexSplit "(?m)^---.*$" $text -1 }}
{{- $document := fromYaml . }}
{{- if $document }}
{{- with $document.Error }}{{ fail (printf "%s: %s" $at .) }}{{ end }}
{{- range keys $document | sortAlpha }}
{{- if not (has . $known.rowFileKeys) }}
{{- fail (printf "%s: unknown key %s; there are: %s" $at . (join ", " $known.rowFileKeys)) }}
{{- end }}
{{- end }}
{{- if ne ($document.kind | default "GrouperTable") "GrouperTable" }}
{{- fail (printf "%s: the kind is %s, and not GrouperTable" $at $document.kind) }}
{{- end }}
{{- if not (kindIs "slice" $document.rows) }}{{ fail (printf "%s: rows must be a list" $at) }}{{ end }}
{{- range $index, $row := $document.rows }}
{{- if not (kindIs "map" $row) }}{{ fail (printf "%s: rows[%d] must have keys" $at $index) }}{{ end }}
{{- range keys $row | sortAlpha }}
{{- if not (has . $known.rowKeys) }}
{{- fail (printf "%s: rows[%d] has an unknown key %s; there are: %s" $at $index . (join ", " $known.rowKeys)) }}
{{- end }}
{{- end }}
{{- if not (and (kindIs "map" $row.match) (dig "kind" "" ($row.match | default dict))) }}
{{- fail (printf "%s: rows[%d].match.kind is missing" $at $index) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Takes also "kind", the kind of the component's configuration file. */}}
{{- define "bindery.configuration" -}}
{{- $given := (index .root.Values .component).configuration }}
{{- if eq .component "grouper" }}{{ include "bindery.checkRowFiles" . }}{{ else }}{{ include "bindery.checkPlugins" . }}{{ end }}
{{- $fixed := dict "apiVersion" "scheduling.bindery.dev/v1alpha1" "kind" .kind }}
{{- $lease := dict "leaderElection" (dict "namespace" .root.Values.leaseNamespace) }}
{{- if and (eq .component "scheduler") .root.Values.tenancyPolicy.enabled }}
{{- $_ := set $lease "tenancyPolicyEnforced" true }}
{{- end }}
{{- if and (eq .component "scheduler") .root.Values.dashboard.enabled }}
{{- $_ := set $lease "history" (dict "enabled" true) }}
{{- end }}
{{- if and (eq .component "scheduler") .root.Values.grouper.enabled }}
{{- $_ := set $lease "grouper" (dict "waitForGroups" true) }}
{{- end }}
{{- $files := dict }}
{{- if eq .component "grouper" }}
{{- $files = .root.Values.grouper.rowFiles }}
{{- $names := keys $files | sortAlpha }}
{{- with $given.rowFiles }}{{ $names = concat $names . }}{{ end }}
{{- if $names }}{{ $_ := set $fixed "rowFiles" $names }}{{ end }}
{{- end }}
{{- if eq .component "binder" }}
{{- $name := printf "%s-webhook" .root.Release.Name }}
{{- $host := printf "%s.%s.svc" $name .root.Release.Namespace }}
{{- $webhook := dict "namespace" .root.Release.Namespace "secret" $name "configuration" $name }}
{{- $_ := set $webhook "dnsNames" (list $host) }}
{{- $_ := set $lease "webhook" $webhook }}
{{- end }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "bindery.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
data:
  {{ .component }}.yaml: |
    {{- mergeOverwrite $lease (deepCopy $given) $fixed | toYaml | nindent 4 }}
  {{- range $name, $text := $files }}
  {{ $name }}: |
    {{- $text | nindent 4 }}
  {{- end }}
{{- end }}

{{/* What the restricted security standard asks of pods, and more. */}}
{{- define "bindery.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "bindery.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "bindery.deployment" -}}
{{- $values := index .root.Values .component }}
{{- /* The webhook runs the binder's plugins, by the binder's configuration. */}}
{{- $file := ternary "binder" .component (eq .component "webhook") }}
{{- $isPage := eq .component "dashboard" }}
{{- $image := .root.Values.image }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "bindery.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
spec:
  # Sessions of the dashboard are in its memory.
  replicas: {{ $values.replicas | default 1 }}
  selector:
    matchLabels: {{- include "bindery.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "bindery.selector" . | nindent 8 }}
      annotations:
        # Pods are replaced when their configuration changes.
        checksum/configuration: {{ list (index .root.Values $file).configuration .root.Values.tenancyPolicy.enabled .root.Values.grouper .root.Values.dashboard.enabled | toJson | sha256sum }}
    spec:
      serviceAccountName: {{ .root.Release.Name }}-{{ .component }}
      automountServiceAccountToken: true
      {{- if not $isPage }}
      priorityClassName: system-cluster-critical
      {{- end }}
      {{- with $image.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- include "bindery.podSecurity" . | nindent 8 }}
      containers:
        - name: {{ .component }}
          image: "{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}"
          imagePullPolicy: {{ $image.pullPolicy }}
          args:
            - {{ .component }}
            - run
            {{- if $isPage }}
            - --port=8443
            - --lease-namespace={{ .root.Values.leaseNamespace }}
            {{- with (first (include "bindery.schedulers" .root | fromJsonArray)).values.configuration.nodePool }}
            - --node-pool={{ . }}
            {{- end }}
            {{- if $values.tlsSecret }}
            - --tls-certificate=/etc/bindery/tls.crt
            - --tls-key=/etc/bindery/tls.key
            {{- end }}
            {{- else }}
            - --config=/etc/bindery/{{ $file }}.yaml
            {{- end }}
            # Kubelet and Prometheus come from outside the pod, and each has a port of its own.
            - --listen-address=$(POD_IP)
            - --health-port=8080
            - --metrics-port=8081
          env:
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
            {{- if not $isPage }}
            - name: BINDERY_IMAGE
              value: "{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}"
            - name: BINDERY_GPU_RESERVATION_RESOURCES
              value: {{ .root.Values.gpuSharing.reservationResources | toJson | quote }}
            {{- range $name, $value := $values.environment }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
            {{- end }}
          ports:
            - {name: health, containerPort: 8080}
            - {name: metrics, containerPort: 8081}
            {{- if or $isPage (eq .component "webhook") }}
            - {name: {{ ternary "page" "webhook" $isPage }}, containerPort: 8443}
            {{- end }}
          # On a busy node with a cold disk a start takes a minute. Until it has answered once, a
          # container is not held to the other two.
          startupProbe:
            httpGet: {path: /healthz, port: health}
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 150
          livenessProbe:
            httpGet: {path: /healthz, port: health}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            periodSeconds: 5
            timeoutSeconds: 5
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext: {{- include "bindery.containerSecurity" . | nindent 12 }}
          {{- if or (not $isPage) $values.tlsSecret }}
          volumeMounts:
            - {name: configuration, mountPath: /etc/bindery, readOnly: true}
            {{- if eq .component "webhook" }}
            - {name: temporary, mountPath: /tmp}
            {{- end }}
      volumes:
        - name: configuration
          {{- if $isPage }}
          secret: {secretName: {{ $values.tlsSecret }}}
          {{- else }}
          configMap: {name: {{ .root.Release.Name }}-{{ $file }}{{ .suffix | default "" }}}
          {{- end }}
        {{- if eq .component "webhook" }}
        # Certificates pass through a file on their way into the server.
        - name: temporary
          emptyDir: {medium: Memory, sizeLimit: 1Mi}
        {{- end }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

{{/* Beside a component's Deployment: one replica at most goes at a time, and only those named in the
values reach its metrics. */}}
{{- define "bindery.guards" -}}
{{- $values := index .root.Values .component }}
{{- if gt (int $values.replicas) 1 }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "bindery.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "bindery.selector" . | nindent 6 }}
---
{{- end }}
{{- if .root.Values.networkPolicy.enabled }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "bindery.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "bindery.labels" .root | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "bindery.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    # The kubelet's probes, and for the webhook the API server: both come from nodes.
    - ports:
        - {port: health}
        {{- if eq .component "webhook" }}
        - {port: webhook}
        {{- end }}
    {{- if eq .component "dashboard" }}
    # People log in, or come through a proxy that did it.
    - ports:
        - {port: page}
      {{- with $values.from }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- with .root.Values.networkPolicy.metricsFrom }}
    - from: {{- toYaml . | nindent 8 }}
      ports:
        - {port: metrics}
    {{- end }}
{{- end }}
{{- end }}
