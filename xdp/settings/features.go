package settings

import (
	"fmt"
	"maps"
	"slices"
)

// kernelFeature has the kernel's name of each feature for which ethtool has names of its own: what `ethtool -k` prints, and
// what `ethtool -K` takes. Names that stand for several features of the kernel (tx-checksumming, scatter-gather,
// tcp-segmentation-offload) are not among them.
var kernelFeature = map[string]string{
	"rx-checksumming": "rx-checksum", "rx": "rx-checksum",
	"generic-segmentation-offload": "tx-generic-segmentation", "gso": "tx-generic-segmentation",
	"generic-receive-offload": "rx-gro", "gro": "rx-gro",
	"large-receive-offload": "rx-lro", "lro": "rx-lro",
	"rx-vlan-offload": "rx-vlan-hw-parse", "rxvlan": "rx-vlan-hw-parse",
	"tx-vlan-offload": "tx-vlan-hw-insert", "txvlan": "tx-vlan-hw-insert",
	"ntuple-filters": "rx-ntuple-filter", "ntuple": "rx-ntuple-filter",
	"receive-hashing": "rx-hashing", "rxhash": "rx-hashing",
}

// inKernelsNames is features by the kernel's names. One that is to be on by one name and off by another is refused.
func inKernelsNames(features map[string]bool) (map[string]bool, error) {
	out := make(map[string]bool, len(features))
	for _, name := range slices.Sorted(maps.Keys(features)) {
		kernels, ok := kernelFeature[name]
		if !ok {
			kernels = name
		}
		if before, ok := out[kernels]; ok && before != features[name] {
			return nil, fmt.Errorf("feature %s: it is %s, which is to be on and off", name, kernels)
		}
		out[kernels] = features[name]
	}
	return out, nil
}
