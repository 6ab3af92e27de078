package main

import (
	"fmt"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

type mergeQuestion struct {
	Policy    string              `json:"policy"`
	Options   map[string]string   `json:"options"`
	Nodes     []int               `json:"nodes"`
	Distances map[int][]uint64    `json:"distances"`
	Providers []map[string][]hint `json:"providers"`
}

// hint has the nodes of its mask, null for no preference.
type hint struct {
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"preferred"`
}

type mergeAnswer struct {
	Hint  hint `json:"hint"`
	Admit bool `json:"admit"`
}

func (q *mergeQuestion) answer() (mergeAnswer, error) {
	policy, err := q.policy()
	if err != nil {
		return mergeAnswer{}, err
	}
	var providers []map[string][]topologymanager.TopologyHint
	for _, resources := range q.Providers {
		var hints map[string][]topologymanager.TopologyHint
		if resources != nil {
			hints = map[string][]topologymanager.TopologyHint{}
		}
		for name, asked := range resources {
			hints[name], err = toHints(asked)
			if err != nil {
				return mergeAnswer{}, err
			}
		}
		providers = append(providers, hints)
	}
	best, admit := policy.Merge(klog.Background(), providers)
	found := hint{Preferred: best.Preferred}
	if best.NUMANodeAffinity != nil {
		found.Nodes = append([]int{}, best.NUMANodeAffinity.GetBits()...)
	}
	return mergeAnswer{found, admit}, nil
}

func (q *mergeQuestion) policy() (topologymanager.Policy, error) {
	options, err := topologymanager.NewPolicyOptions(klog.Background(), q.Options)
	if err != nil {
		return nil, err
	}
	var nodes []cadvisorapi.Node
	for _, id := range q.Nodes {
		nodes = append(nodes, cadvisorapi.Node{Id: id, Distances: q.Distances[id]})
	}
	info, err := topologymanager.NewNUMAInfo(nodes, options)
	if err != nil {
		return nil, err
	}
	switch q.Policy {
	case topologymanager.PolicyBestEffort:
		return topologymanager.NewBestEffortPolicy(info, options), nil
	case topologymanager.PolicyRestricted:
		return topologymanager.NewRestrictedPolicy(info, options), nil
	case topologymanager.PolicySingleNumaNode:
		return topologymanager.NewSingleNumaNodePolicy(info, options), nil
	}
	return nil, fmt.Errorf("unknown policy %q", q.Policy)
}

func toHints(asked []hint) ([]topologymanager.TopologyHint, error) {
	if asked == nil {
		return nil, nil
	}
	hints := []topologymanager.TopologyHint{}
	for _, one := range asked {
		next := topologymanager.TopologyHint{Preferred: one.Preferred}
		if one.Nodes != nil {
			mask, err := bitmask.NewBitMask(one.Nodes...)
			if err != nil {
				return nil, err
			}
			next.NUMANodeAffinity = mask
		}
		hints = append(hints, next)
	}
	return hints, nil
}
