#!/bin/sh
# Adds an access token of a tenant to the Secret rgpu-tokens, and writes the token to a file.
#   deploy/kubernetes/add-token.sh TENANT FILE [NAMESPACE [NAME]]
# Needs `rgpu` and `kubectl` on this machine. The parts of rgpu know the token a minute later.
set -eu
if [ $# -lt 2 ]; then
  echo "usage: add-token.sh TENANT FILE [NAMESPACE [NAME]]" >&2
  exit 2
fi
namespace=${3:-rgpu-system} name=${4:-rgpu-tokens}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
umask 077
# Without this file all other tokens would be lost.
tokens=$(kubectl get secret "$name" --namespace "$namespace" --output 'jsonpath={.data.tokens\.toml}')
if [ -z "$tokens" ]; then
  echo "Secret $name in the namespace $namespace has no tokens.toml; make it with make-secrets.sh" >&2
  exit 1
fi
echo "$tokens" | base64 -d > "$folder/tokens.toml"
rgpu token new "$1" --file "$2" --tokens "$folder/tokens.toml" >&2
kubectl patch secret "$name" --namespace "$namespace" \
  --patch "{\"data\": {\"tokens.toml\": \"$(base64 -w0 < "$folder/tokens.toml")\"}}"
