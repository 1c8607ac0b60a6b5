#!/bin/sh
# Makes the Secret rgpu-tokens: the tokens that the manager knows, and the one by which servers join.
#   deploy/kubernetes/make-secrets.sh [NAMESPACE [NAME]] | kubectl apply -f -
# Needs `rgpu` on this machine, and leaves nothing there.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
umask 077
rgpu token new nodes --file "$folder/nodes.token" --tokens "$folder/tokens.toml" >&2
kubectl create secret generic "${2:-rgpu-tokens}" --namespace "${1:-rgpu-system}" --dry-run=client --output=yaml \
  --from-file="$folder/tokens.toml" --from-file="$folder/nodes.token"
