// Command feasible says on which nodes kube-scheduler's filters would let a pod run.
//
// It reads JSON lines from standard input, each a cluster and a pod, and writes one JSON line for
// each: the names of the feasible nodes. The filters are those of kube-scheduler's own packages in
// their default configuration. Used by the differential test.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

var filters = []string{
	names.PrioritySort, // a profile must have these two
	names.DefaultBinder,
	names.NodeUnschedulable,
	names.NodeName,
	names.TaintToleration,
	names.NodeAffinity,
	names.NodePorts,
	names.NodeResourcesFit,
	names.VolumeRestrictions,
	names.NodeVolumeLimits,
	names.VolumeBinding,
	names.VolumeZone,
	names.PodTopologySpread,
	names.InterPodAffinity,
	names.DynamicResources,
	names.NodeDeclaredFeatures,
}

type question struct {
	Nodes      []*v1.Node      `json:"nodes"`
	Namespaces []*v1.Namespace `json:"namespaces"`
	Pods       []*v1.Pod       `json:"pods"`
	Pod        *v1.Pod         `json:"pod"`
	// Storage and devices, each with apiVersion and kind.
	Objects []json.RawMessage `json:"objects"`
}

type answer struct {
	Nodes []string `json:"nodes"`
}

// nominator has the pods that are nominated for nodes, by node name.
type nominator map[string][]fwk.PodInfo

func (n nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (n nominator) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (n nominator) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
func (n nominator) NominatedPodsForNode(name string) []fwk.PodInfo                { return n[name] }

func main() {
	metrics.Register()
	if err := answerAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answerAll(in io.Reader, out io.Writer) error {
	profile, err := filterProfile()
	if err != nil {
		return err
	}
	decoder, writer := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var asked question
		if err := decoder.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		nodes, err := feasible(asked, profile)
		if err != nil {
			return err
		}
		if err := writer.Encode(answer{nodes}); err != nil {
			return err
		}
	}
}

// filterProfile returns the default profile with nothing but the filters.
func filterProfile() (*config.KubeSchedulerProfile, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := defaults.Profiles[0]
	profile.Plugins = &config.Plugins{}
	for _, name := range filters {
		plugin := config.Plugin{Name: name, Weight: 1}
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, plugin)
	}
	return &profile, nil
}

func feasible(asked question, profile *config.KubeSchedulerProfile) ([]string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	objects, err := decoded(asked)
	if err != nil {
		return nil, err
	}
	placed, nominated, err := sorted(asked.Pods)
	if err != nil {
		return nil, err
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	watched := record(factory)
	slices, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		SliceInformer: factory.Resource().V1().ResourceSlices(), KubeClient: client,
	})
	if err != nil {
		return nil, err
	}
	claimInformer := factory.Resource().V1().ResourceClaims().Informer()
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), claimInformer, "ResourceClaim", "", nil)
	snapshot := cache.NewSnapshot(placed, asked.Nodes)
	scheduler, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithPodNominator(nominated),
		frameworkruntime.WithSharedDRAManager(dynamicresources.NewDRAManager(ctx, claims, slices, factory)),
		frameworkruntime.WithSharedCSIManager(
			nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
	)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if !watched.wait(ctx) {
		return nil, ctx.Err()
	}
	return filtered(ctx, scheduler, snapshot, asked.Pod)
}

// decoded returns the objects that the informers of the filters list.
func decoded(asked question) ([]runtime.Object, error) {
	objects := []runtime.Object{}
	for _, namespace := range asked.Namespaces {
		objects = append(objects, namespace)
	}
	for _, node := range asked.Nodes {
		objects = append(objects, node)
	}
	for _, raw := range asked.Objects {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// sorted returns the pods that are on nodes, and those that are nominated for one.
func sorted(pods []*v1.Pod) ([]*v1.Pod, nominator, error) {
	placed, nominated := []*v1.Pod{}, nominator{}
	for _, pod := range pods {
		if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue // kube-scheduler's informer leaves them out
		}
		if pod.Spec.NodeName != "" {
			placed = append(placed, pod)
		} else if name := pod.Status.NominatedNodeName; name != "" {
			info, err := framework.NewPodInfo(pod)
			if err != nil {
				return nil, nil, err
			}
			nominated[name] = append(nominated[name], info)
		}
	}
	return placed, nominated, nil
}

func filtered(
	ctx context.Context, scheduler framework.Framework, snapshot *cache.Snapshot, pod *v1.Pod,
) ([]string, error) {
	found, state := []string{}, framework.NewCycleState()
	preliminary, status, _ := scheduler.RunPreFilterPlugins(ctx, state, pod)
	if status.IsRejected() {
		return found, nil
	} else if !status.IsSuccess() {
		return nil, status.AsError()
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		name := node.Node().Name
		if !preliminary.AllNodes() && !preliminary.NodeNames.Has(name) {
			continue
		}
		status := scheduler.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
		if status.IsSuccess() {
			found = append(found, name)
		} else if !status.IsRejected() {
			return nil, status.AsError()
		}
	}
	sort.Strings(found)
	return found, nil
}
