// Prints the custom resource definitions that Karpenter and its KWOK provider bring, as a list for kubectl.
package main

import (
	"encoding/json"
	"os"

	provider "sigs.k8s.io/karpenter/kwok/apis"
	"sigs.k8s.io/karpenter/pkg/apis"
)

func main() {
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": append(apis.CRDs, provider.CRDs...)}
	if err := json.NewEncoder(os.Stdout).Encode(list); err != nil {
		panic(err)
	}
}
