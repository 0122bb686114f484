{{/* What every object carries; "component" is of the caller. */}}
{{- define "cistern.labels" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default "cistern" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: cistern
{{- with .root.Values.customLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What selectors use; never changed, since a selector cannot be. */}}
{{- define "cistern.selector" -}}
app.kubernetes.io/part-of: cistern
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "cistern.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "cistern.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Whether arguments of the administrator's set where a sidecar listens: it refuses a second address. */}}
{{- define "cistern.hasOwnEndpoint" -}}
{{- if regexMatch "(^| )--(http-endpoint|metrics-address)" (join " " .additionalArgs) }}true{{ end }}
{{- end }}

{{/* Of a sidecar that is frozen, or leads and cannot renew its lease. */}}
{{- define "cistern.leaderProbe" -}}
{{- if not (include "cistern.hasOwnEndpoint" .sidecar) -}}
livenessProbe:
  httpGet: {path: /healthz/leader-election, port: {{ .port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}
{{- end }}

{{/* Of a container that needs nothing from the kernel. */}}
{{- define "cistern.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Must a disk of its own be mounted at the pool's path before a pool is made there? */}}
{{- define "cistern.requireMount" -}}
{{- if kindIs "bool" .requireMount }}{{ .requireMount }}{{ else }}true{{ end -}}
{{- end }}

{{/*
Pools by their nodeSelector, as a list of {name, selector, pools}: a DaemonSet of the node and one of the keeper for each.
The first has no name of its own, so that the usual cluster has cistern-node and cistern-keeper.
*/}}
{{- define "cistern.groups" -}}
{{- $groups := list -}}
{{- $seen := dict -}}
{{- $names := dict -}}
{{- range .Values.pools -}}
  {{- if hasKey $names .name }}{{ fail (printf "pools: there are two of the name '%s'" .name) }}{{ end -}}
  {{- $_ := set $names .name true -}}
  {{- $disks := concat ((.devices | default dict).models | default list) ((.devices | default dict).paths | default list) -}}
  {{- if and (eq .type "nvme-raid0") (empty $disks) }}{{ fail (printf "pools: '%s' is made of disks: give devices.models or devices.paths" .name) }}{{ end -}}
  {{- if and (ne .type "nvme-raid0") (or $disks .wipe) }}{{ fail (printf "pools: '%s' is of type %s: devices and wipe are of the type nvme-raid0" .name .type) }}{{ end -}}
  {{- if and (eq .type "disk") (empty .device) }}{{ fail (printf "pools: '%s' is one disk: give device, such as /dev/disk/by-partlabel/cistern" .name) }}{{ end -}}
  {{- if and (ne .type "disk") .device }}{{ fail (printf "pools: '%s' is of type %s: device is of the type disk" .name .type) }}{{ end -}}
  {{- if and .ephemeral (ne (include "cistern.requireMount" .) "true") }}{{ fail (printf "pools: '%s' is ephemeral: that needs requireMount, or any boot without its disk would make a new pool" .name) }}{{ end -}}
  {{- $key := toJson (.nodeSelector | default dict) -}}
  {{- if not (hasKey $seen $key) -}}
    {{- $suffix := ternary "" (printf "-%s" .name) (empty $groups) -}}
    {{- $group := dict "suffix" $suffix "selector" (.nodeSelector | default dict) "pools" (list) "reserve" .reservePercent -}}
    {{- $_ := set $seen $key $group -}}
    {{- $groups = append $groups $group -}}
  {{- end -}}
  {{- $group := get $seen $key -}}
  {{- if ne (int $group.reserve) (int .reservePercent) }}{{ fail (printf "pools: '%s' has another reservePercent than the other pool of its nodes" .name) }}{{ end -}}
  {{- $one := . -}}
  {{- range $group.pools -}}
    {{- if eq .path $one.path }}{{ fail (printf "pools: '%s' and '%s' have the same nodes and the same path: give one of them another path" .name $one.name) }}{{ end -}}
  {{- end -}}
  {{- $_ := set $group "pools" (append $group.pools .) -}}
{{- end -}}
{{- range $a := $groups -}}
  {{- $wide := merge (dict) $a.selector $.Values.node.nodeSelector -}}
  {{- range $b := $groups -}}
    {{- $narrow := merge (dict) $b.selector $.Values.node.nodeSelector -}}
    {{- $apart := dict "yes" (eq (toJson $a.selector) (toJson $b.selector)) -}}
    {{- range $key, $value := $wide -}}
      {{- if ne (get $narrow $key | toString) ($value | toString) }}{{ $_ := set $apart "yes" true }}{{ end -}}
    {{- end -}}
    {{- if not $apart.yes }}{{ fail (printf "pools: every node of pool '%s' is one of pool '%s' too, and two drivers would run there: give both the same nodeSelector, or ones that no node matches both" (first $b.pools).name (first $a.pools).name) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- toJson (dict "groups" $groups) -}}
{{- end }}

{{/*
The directories of the host that the pods of a group see, as a list of {name, path}. A plain directory may be missing: its
parent is shown instead, so that the driver starts and reports it.
*/}}
{{- define "cistern.shown" -}}
{{- $shown := list -}}
{{- $seen := dict -}}
{{- range .pools -}}
  {{- $path := .path -}}
  {{- if ne (include "cistern.requireMount" .) "true" -}}{{- $path = dir .path -}}{{- end -}}
  {{- if eq $path "/" }}{{ fail (printf "pools: '%s' is a plain directory at the top of the node: give it a parent, as in /mnt%s" .name .path) }}{{ end -}}
  {{- if not (hasKey $seen $path) -}}
    {{- $_ := set $seen $path true -}}
    {{- $shown = append $shown (dict "name" (printf "pool-%s" .name) "path" $path) -}}
  {{- end -}}
{{- end -}}
{{- toJson $shown -}}
{{- end }}

{{/* Where the pods of a group may run. */}}
{{- define "cistern.placement" -}}
nodeSelector:
  kubernetes.io/os: linux
  {{- with merge (dict) .group.selector .root.Values.node.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.node.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.node.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
