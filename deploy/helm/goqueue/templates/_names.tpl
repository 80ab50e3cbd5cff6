{{- define "goqueue.name" -}}
{{- if contains "goqueue" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-goqueue" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "goqueue.headless" -}}{{ include "goqueue.name" . }}-nodes{{- end }}

{{- define "goqueue.selector" -}}
app.kubernetes.io/name: goqueue
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "goqueue.labels" -}}
{{ include "goqueue.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "goqueue.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}

{{- define "goqueue.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "goqueue.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "goqueue.clusterSecret" -}}
{{- .Values.auth.clusterSecret.existingSecret | default (printf "%s-cluster-secret" (include "goqueue.name" .)) -}}
{{- end }}

{{- define "goqueue.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled }}{{ include "goqueue.name" . }}-tls{{ else }}{{ .Values.tls.existingSecret }}{{ end -}}
{{- end }}

{{- /* The DNS name of a pod: (dict "root" $ "index" 0) */ -}}
{{- define "goqueue.podHost" -}}
{{ include "goqueue.name" .root }}-{{ .index }}.{{ include "goqueue.headless" .root }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{- /* HOST:PORT that a pod advertises outside: (dict "root" $ "index" 0) */ -}}
{{- define "goqueue.external" -}}
{{- $external := .root.Values.external -}}
{{- $port := ternary (add $external.firstNodePort .index) $external.port (eq $external.type "NodePort") -}}
{{- $host := "" -}}
{{- if $external.hosts -}}
{{- if ne (len $external.hosts) (int .root.Values.replicas) -}}{{ fail "external.hosts needs one host for each replica" }}{{- end -}}
{{- $host = index $external.hosts .index -}}
{{- else if $external.hostTemplate -}}
{{- $host = $external.hostTemplate | replace "{index}" (toString .index) | replace "{name}" (printf "%s-%d" (include "goqueue.name" .root) .index) -}}
{{- else -}}
{{- fail "external.enabled needs external.hostTemplate or external.hosts: clients connect to each pod by an address of its own" -}}
{{- end -}}
{{- if contains ":" $host }}{{ $host }}{{ else }}{{ $host }}:{{ $port }}{{ end -}}
{{- end }}

{{- define "goqueue.isEncrypted" -}}
{{- $external := .Values.external.security | default .Values.listeners.security -}}
{{- if or (has .Values.listeners.security (list "ssl" "sasl_ssl")) (and .Values.external.enabled (has $external (list "ssl" "sasl_ssl"))) .Values.tls.internal }}true{{ end -}}
{{- end }}

{{- /* The settings of one pod: (dict "root" $ "index" 0). What the chart sets goes before `settings`. */ -}}
{{- define "goqueue.settings" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $listeners := $values.listeners -}}
{{- $security := $listeners.security -}}
{{- $prefix := ternary "" (printf "%s://" $security) (eq $security "plaintext") -}}
{{- $host := include "goqueue.podHost" . -}}
{{- $kafka := printf "%s0.0.0.0:%d" $prefix (int $listeners.kafka) -}}
{{- $advertised := printf "%s:%d" $host (int $listeners.kafka) -}}
{{- if $values.external.enabled -}}
{{- $outside := $values.external.security | default $security -}}
{{- $kafka = printf "%s,external=%s://0.0.0.0:%d" $kafka $outside (int $values.external.port) -}}
{{- $advertised = printf "%s,external=%s" $advertised (include "goqueue.external" .) -}}
{{- end -}}
{{- $peers := list -}}
{{- range $index := until (min (int $values.voters) (int $values.replicas) | int) -}}
{{- $peers = append $peers (printf "%d@%s:%d" (add1 $index) (include "goqueue.podHost" (dict "root" $root "index" $index)) (int $listeners.internal)) -}}
{{- end -}}
{{- $name := include "goqueue.name" $root -}}
{{- $service := printf "%s.%s" $name $root.Release.Namespace -}}
{{- $hosts := list $name $service (printf "%s.svc" $service) (printf "%s.svc.%s" $service $values.clusterDomain) $host -}}
{{- $own := dict "node" (dict "id" (add1 .index) "data_dir" "/var/lib/goqueue") -}}
{{- $_ := set $own "listeners" (dict
  "kafka" $kafka
  "kafka_advertised" $advertised
  "http" (printf "%s0.0.0.0:%d" $prefix (int $listeners.http))
  "http_advertised" (printf "%s:%d" $host (int $listeners.http))
  "registry" (printf "%s0.0.0.0:%d" $prefix (int $listeners.registry))
  "grpc" (printf "%s0.0.0.0:%d" $prefix (int $listeners.grpc))
  "internal" (printf "0.0.0.0:%d" (int $listeners.internal))
  "internal_advertised" (printf "%s:%d" $host (int $listeners.internal))
  "allow_unauthenticated" $listeners.allowUnauthenticated
  "http_hosts" (join "," $hosts)) -}}
{{- if $listeners.sqs.enabled -}}
{{- $_ := set $own.listeners "sqs" (printf "%s0.0.0.0:%d" $prefix (int $listeners.sqs.port)) -}}
{{- end -}}
{{- if eq $values.tls.clientAuth "required" -}}
{{- $_ := set $own.listeners "http" (printf "%s,health=127.0.0.1:8079" $own.listeners.http) -}}
{{- end -}}
{{- if gt (int $values.replicas) 1 -}}
{{- $_ := set $own "cluster" (dict "peers" (join "," $peers)) -}}
{{- end -}}
{{- if include "goqueue.isEncrypted" $root -}}
{{- $folder := "/etc/goqueue/tls" -}}
{{- $_ := set $own "security" (dict "tls_certificate" (printf "%s/tls.crt" $folder) "tls_key" (printf "%s/tls.key" $folder) "tls_client_auth" $values.tls.clientAuth) -}}
{{- if ne $values.tls.clientAuth "none" -}}
{{- $_ := set $own.security "tls_client_authorities" (printf "%s/ca.crt" $folder) -}}
{{- end -}}
{{- if and $values.tls.internal $own.cluster -}}
{{- $_ := set $own "cluster" (merge $own.cluster (dict "tls_certificate" (printf "%s/tls.crt" $folder) "tls_key" (printf "%s/tls.key" $folder) "tls_authorities" (printf "%s/ca.crt" $folder))) -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite (deepCopy $values.settings) $own | toYaml -}}
{{- end }}

{{- /* One object with what the values merge into it and patch: (dict "root" $ "object" YAML "name" "statefulSet") */ -}}
{{- define "goqueue.merged" -}}
{{- $object := mergeOverwrite (fromYaml .object) (index .root.Values.merge .name) -}}
{{- range $operation := index .root.Values.patch .name -}}
{{- $keys := rest (splitList "/" $operation.path) -}}
{{- if not $keys }}{{ fail (printf "patch.%s: the path %q has to begin with / and a name" $.name $operation.path) }}{{ end -}}
{{- $context := dict "node" $object "keys" $keys "operation" $operation "where" (printf "patch.%s: %s %s" $.name $operation.op $operation.path) -}}
{{- $object = (include "goqueue.patched" $context | fromJson).node -}}
{{- end -}}
{{- toYaml $object -}}
{{- end }}

{{- /* One operation of a JSON patch (RFC 6902: add, replace, remove, test) below a node; the result is {"node": ...}. */ -}}
{{- define "goqueue.patched" -}}
{{- $node := .node -}}
{{- $operation := .operation -}}
{{- $last := eq (len .keys) 1 -}}
{{- $key := first .keys | replace "~1" "/" | replace "~0" "~" -}}
{{- if not (has $operation.op (list "add" "replace" "remove" "test")) }}{{ fail (printf "%s: the operations are add, replace, remove and test" .where) }}{{ end -}}
{{- if kindIs "map" $node -}}
{{- if and (not (hasKey $node $key)) (or (not $last) (ne $operation.op "add")) }}{{ fail (printf "%s: there is no %q" .where $key) }}{{ end -}}
{{- if not $last -}}
{{- $below := include "goqueue.patched" (dict "node" (index $node $key) "keys" (rest .keys) "operation" $operation "where" .where) | fromJson -}}
{{- $_ := set $node $key $below.node -}}
{{- else if eq $operation.op "remove" -}}
{{- $_ := unset $node $key -}}
{{- else if eq $operation.op "test" -}}
{{- if ne (toJson (index $node $key)) (toJson $operation.value) }}{{ fail (printf "%s: it is %s" .where (toJson (index $node $key))) }}{{ end -}}
{{- else -}}
{{- $_ := set $node $key $operation.value -}}
{{- end -}}
{{- else if kindIs "slice" $node -}}
{{- $count := len $node -}}
{{- $isEnd := and $last (eq $key "-") (eq $operation.op "add") -}}
{{- if and (not $isEnd) (not (regexMatch "^(0|[1-9][0-9]*)$" $key)) }}{{ fail (printf "%s: %q is no number of a list" .where $key) }}{{ end -}}
{{- $index := ternary $count (int $key) $isEnd -}}
{{- $limit := ternary (add1 $count | int) $count (and $last (eq $operation.op "add")) -}}
{{- if ge $index $limit }}{{ fail (printf "%s: the list has %d entries" .where $count) }}{{ end -}}
{{- $before := slice $node 0 $index -}}
{{- if not $last -}}
{{- $below := include "goqueue.patched" (dict "node" (index $node $index) "keys" (rest .keys) "operation" $operation "where" .where) | fromJson -}}
{{- $node = concat $before (list $below.node) (slice $node (add1 $index | int)) -}}
{{- else if eq $operation.op "add" -}}
{{- $node = concat $before (list $operation.value) (slice $node $index) -}}
{{- else if eq $operation.op "remove" -}}
{{- $node = concat $before (slice $node (add1 $index | int)) -}}
{{- else if eq $operation.op "replace" -}}
{{- $node = concat $before (list $operation.value) (slice $node (add1 $index | int)) -}}
{{- else if ne (toJson (index $node $index)) (toJson $operation.value) -}}
{{- fail (printf "%s: it is %s" .where (toJson (index $node $index))) -}}
{{- end -}}
{{- else -}}
{{- fail (printf "%s: %q is below a plain value" .where $key) -}}
{{- end -}}
{{- toJson (dict "node" $node) -}}
{{- end }}

{{- /* What of the settings has to restart every pod: not the list of pods, so that scaling restarts none. */ -}}
{{- define "goqueue.checksum" -}}
{{- $hosts := .Values.external.hosts -}}
{{- $common := dict "settings" (include "goqueue.settings" (dict "root" . "index" 0)) "hosts" (slice $hosts 0 (min (len $hosts) (int .Values.voters) | int)) -}}
{{- toJson $common | sha256sum -}}
{{- end }}

{{- define "goqueue.test.protocol" -}}{{- ternary "https" "http" (has .Values.listeners.security (list "ssl" "sasl_ssl")) -}}{{- end }}

{{- /* How the kubelet asks a node: (dict "root" $ "path" "/readyz"). It has no certificate for listeners that
require one, so a program in the pod asks a listener on loopback then. */ -}}
{{- define "goqueue.probe" -}}
{{- if eq .root.Values.tls.clientAuth "required" -}}
exec: {command: [goqueue-health, "http://127.0.0.1:8079{{ .path }}"]}
{{- else -}}
httpGet: {path: {{ .path }}, port: http, scheme: {{ include "goqueue.test.protocol" .root | upper }}}
{{- end -}}
{{- end }}
