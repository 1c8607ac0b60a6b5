#!/bin/sh
# Makes the Secrets of rgpu: the tokens that the manager knows and the one by which servers join; an
# authority, and the certificates of the servers and of the manager. What the cluster has already
# stays, but certificates that end within 30 days are made anew.
#   deploy/kubernetes/make-secrets.sh [NAMESPACE [TOKENS [TLS]]] | kubectl apply -f -
# TOKENS and TLS are names of Secrets (rgpu-tokens, rgpu-tls). With `none` for TLS no certificates are
# made. Needs `rgpu`, `kubectl` and `openssl` (3.0 or later) on this machine, and leaves nothing there.
set -eu
namespace=${1:-rgpu-system} tokens=${2:-rgpu-tokens} tls=${3:-rgpu-tls}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
umask 077

# Writes a key of a Secret in the cluster to a file, if it is there.
#   fetch SECRET KEY FILE
fetch() {
  value=$(kubectl get secret "$1" --namespace "$namespace" --ignore-not-found --output "jsonpath={.data.$2}")
  if [ -n "$value" ]; then echo "$value" | base64 -d > "$3"; fi
}

# Prints a Secret.
#   secret KIND NAME WORD...
secret() {
  kind=$1 name=$2
  shift 2
  kubectl create secret "$kind" "$name" --namespace "$namespace" --dry-run=client --output=yaml "$@"
  echo "---"
}

# Makes a certificate, or keeps the one that is there, and prints its Secret.
#   certificate SECRET HOST...
certificate() {
  name=$1
  shift
  fetch "$name" 'tls\.crt' "$folder/$name.pem"
  fetch "$name" 'tls\.key' "$folder/$name.key"
  if [ -e "$folder/$name.pem" ] && [ "$authority" = new ]; then
    echo "Secret $name is there, and $tls-authority is not: leave certificates to who makes them, by" \
      "the third argument \`none\`, or delete $name to have an authority and certificates made" >&2
    exit 1
  fi
  hosts=
  for host; do hosts="$hosts --host $host"; done
  # shellcheck disable=SC2086 # names of hosts have no blanks
  rgpu tls init "$folder" --server "$name" --renew 30 $hosts > /dev/null
  secret generic "$name" --type=kubernetes.io/tls --from-file=tls.crt="$folder/$name.pem" \
    --from-file=tls.key="$folder/$name.key" --from-file=ca.crt="$folder/ca.pem"
}

make_all() {
  fetch "$tokens" 'tokens\.toml' "$folder/tokens.toml"
  fetch "$tokens" 'nodes\.token' "$folder/nodes.token"
  if [ ! -e "$folder/nodes.token" ]; then
    rgpu token new nodes --file "$folder/nodes.token" --tokens "$folder/tokens.toml" >&2
  fi
  secret generic "$tokens" --from-file="$folder/tokens.toml" --from-file="$folder/nodes.token"
  if [ "$tls" = none ]; then return; fi
  fetch "$tls-authority" 'tls\.crt' "$folder/ca.pem"
  fetch "$tls-authority" 'tls\.key' "$folder/ca.key"
  if [ -e "$folder/ca.pem" ]; then authority=old; else authority=new; fi
  # The name by which programs know every GPU node, whose address nobody knows now.
  certificate "$tls" rgpu-gpu-node
  certificate "$tls-manager" "rgpu-manager.$namespace" "rgpu-manager.$namespace.svc" rgpu-manager \
    localhost 127.0.0.1 ::1
  secret tls "$tls-authority" --cert="$folder/ca.pem" --key="$folder/ca.key"
}

# Nothing is printed unless all was made.
make_all > "$folder/secrets.yaml"
cat "$folder/secrets.yaml"
