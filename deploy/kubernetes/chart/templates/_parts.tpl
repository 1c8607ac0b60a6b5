{{/* The namespace of all parts. */}}
{{- define "rgpu.namespace" -}}
{{- .Values.namespace | default .Release.Namespace -}}
{{- end -}}

{{/* The objects of a file, as a list in YAML. Takes a list: the root, and the file. */}}
{{- define "rgpu.objects" -}}
{{- $root := index . 0 -}}
{{- $file := printf "files/%s" (index . 1) -}}
{{- $text := $root.Files.Get $file -}}
{{- if not $text -}}
{{- fail (printf "the chart has no %s: its links lead out of its folder, so copy the whole of deploy/kubernetes, or what `helm package` makes" $file) -}}
{{- end -}}
{{- $text = $text | replace "rgpu-system" (include "rgpu.namespace" $root) -}}
{{- range regexSplit "(?m)^---$" $text -1 -}}
{{- $object := fromYaml . -}}
{{- with $object.Error -}}
{{- fail (printf "%s: %s" $file .) -}}
{{- end -}}
{{- if $object }}
- {{ toJson $object }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Sets a key of a dictionary, or removes it if the value is empty. Takes a list of the three. */}}
{{- define "rgpu.put" -}}
{{- if index . 2 -}}
{{- $_ := set (index . 0) (index . 1) (index . 2) -}}
{{- else -}}
{{- $_ := unset (index . 0) (index . 1) -}}
{{- end -}}
{{- end -}}

{{/* Gives a Deployment or DaemonSet its values. Takes a list: the root, the object, its values. */}}
{{- define "rgpu.workload" -}}
{{- $root := index . 0 -}}
{{- $spec := (index . 1).spec -}}
{{- $values := index . 2 -}}
{{- $pod := $spec.template.spec -}}
{{- if hasKey $values "replicas" -}}
{{- $_ := set $spec "replicas" $values.replicas -}}
{{- end -}}
{{- include "rgpu.put" (list $pod "nodeSelector" $values.nodeSelector) -}}
{{- include "rgpu.put" (list $pod "tolerations" $values.tolerations) -}}
{{- include "rgpu.put" (list $pod "imagePullSecrets" $root.Values.image.pullSecrets) -}}
{{- range $container := $pod.containers -}}
{{- $own := get $values $container.name | default $values -}}
{{- $_ := set $container "image" $root.Values.image.repository -}}
{{- with $root.Values.image.tag -}}
{{- $_ := set $container "image" (printf "%s:%s" $root.Values.image.repository .) -}}
{{- end -}}
{{- include "rgpu.put" (list $container "imagePullPolicy" $root.Values.image.pullPolicy) -}}
{{- include "rgpu.put" (list $container "resources" $own.resources) -}}
{{- $_ := set $container "args" (concat $container.args $own.args) -}}
{{- end -}}
{{- $tls := $root.Values.tls.secret -}}
{{- $secrets := dict "rgpu-tokens" $root.Values.tokensSecret "rgpu-tls" $tls "rgpu-tls-manager" (printf "%s-manager" $tls) "rgpu-units-webhook-tls" $root.Values.legacy.webhook.tlsSecret -}}
{{- range $pod.volumes -}}
{{- with .secret -}}
{{- $_ := set . "secretName" (get $secrets .secretName | default .secretName) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes TLS out of a workload's pod: its options, variables and files. */}}
{{- define "rgpu.plain" -}}
{{- $files := list "tls" "authority" -}}
{{- range $container := .containers -}}
{{- $args := list -}}
{{- range $container.args -}}
{{- if not (hasPrefix "--tls-" .) -}}
{{- $args = append $args (replace "=tls:" "=" .) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $container "args" $args -}}
{{- $env := list -}}
{{- range $container.env -}}
{{- if not (hasPrefix "RGPU_TLS_" .name) -}}
{{- $env = append $env . -}}
{{- end -}}
{{- end -}}
{{- include "rgpu.put" (list $container "env" $env) -}}
{{- $mounts := list -}}
{{- range $container.volumeMounts -}}
{{- if not (has .name $files) -}}
{{- $mounts = append $mounts . -}}
{{- end -}}
{{- end -}}
{{- include "rgpu.put" (list $container "volumeMounts" $mounts) -}}
{{- end -}}
{{- $volumes := list -}}
{{- range .volumes -}}
{{- if not (has .name $files) -}}
{{- $volumes = append $volumes . -}}
{{- end -}}
{{- end -}}
{{- include "rgpu.put" (list . "volumes" $volumes) -}}
{{- end -}}

{{/* Gives the GPU nodes their devices. Takes a list: the root, and the DaemonSet. */}}
{{- define "rgpu.gpuNodes" -}}
{{- $values := (index . 0).Values.gpuNodes -}}
{{- $pod := (index . 1).spec.template.spec -}}
{{- include "rgpu.put" (list $pod "runtimeClassName" $values.runtimeClassName) -}}
{{- range $container := $pod.containers -}}
{{- if eq $container.name "server" -}}
{{- $args := list -}}
{{- range $container.args -}}
{{- if ne . "--device=cuda" -}}
{{- $args = append $args . -}}
{{- else -}}
{{- range $values.devices -}}
{{- $args = append $args (printf "--device=%s" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $container "args" $args -}}
{{- range $container.env -}}
{{- if eq .name "NVIDIA_VISIBLE_DEVICES" -}}
{{- $_ := set . "value" $values.visibleDevices -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the manager's configuration file says; "": it has none. */}}
{{- define "rgpu.managerConfig" -}}
{{- if .Values.legacy.extender.enabled -}}
{{- if contains "[kubernetes]" .Values.manager.config -}}
{{- fail "manager.config: write `kubernetes.KEY = VALUE` lines at the top instead of a table [kubernetes], because legacy.extender has such lines" -}}
{{- end -}}
kubernetes.extender = "0.0.0.0:7444"
kubernetes.extender_certificate = "/run/secrets/rgpu-extender/tls.crt"
kubernetes.extender_key = "/run/secrets/rgpu-extender/tls.key"
kubernetes.extender_ca = "/run/secrets/rgpu-extender/ca.crt"
{{ end -}}
{{- .Values.manager.config -}}
{{- end -}}

{{/* Gives the manager its configuration file. Takes a list: the root, and the Deployment. */}}
{{- define "rgpu.manager" -}}
{{- $root := index . 0 -}}
{{- $template := (index . 1).spec.template -}}
{{- $pod := $template.spec -}}
{{- $container := index $pod.containers 0 -}}
{{- with include "rgpu.managerConfig" $root -}}
{{- /* A manager reads its configuration when it starts. */ -}}
{{- $_ := set $template.metadata "annotations" (dict "rgpu.dev/configuration" (sha256sum .)) -}}
{{- $_ := set $container "args" (append $container.args "--config=/etc/rgpu/rgpu.toml") -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" "config" "mountPath" "/etc/rgpu" "readOnly" true)) -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "config" "configMap" (dict "name" "rgpu-manager"))) -}}
{{- end -}}
{{- if $root.Values.legacy.extender.enabled -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" "extender" "mountPath" "/run/secrets/rgpu-extender" "readOnly" true)) -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "extender" "secret" (dict "secretName" $root.Values.legacy.extender.tlsSecret))) -}}
{{- end -}}
{{- end -}}

{{/* Gives a MutatingAdmissionPolicy or its binding the version that the cluster serves. Takes a list: the root, and the object. */}}
{{- define "rgpu.mutating" -}}
{{- $capabilities := (index . 0).Capabilities -}}
{{- if semverCompare "<1.36.0-0" $capabilities.KubeVersion.Version -}}
{{- $beta := "admissionregistration.k8s.io/v1beta1" -}}
{{- if not ($capabilities.APIVersions.Has (printf "%s/MutatingAdmissionPolicy" $beta)) -}}
{{- fail (printf "Kubernetes %s serves no MutatingAdmissionPolicy, by which pods wait for the manager: start kube-apiserver with --feature-gates=MutatingAdmissionPolicy=true --runtime-config=%s=true, upgrade to 1.36 or later, or do without (--set policies.placement=false)" $capabilities.KubeVersion.Version $beta) -}}
{{- end -}}
{{- $_ := set (index . 1) "apiVersion" $beta -}}
{{- end -}}
{{- end -}}
