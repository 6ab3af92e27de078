package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

type nodeQuestion struct {
	Machine         machine                           `json:"machine"`
	CPUPolicy       string                            `json:"cpuPolicy"`
	CPUOptions      map[string]string                 `json:"cpuOptions"`
	ReservedCPUs    string                            `json:"reservedCPUs"`
	NodeReserved    v1.ResourceList                   `json:"nodeReserved"`
	MemoryPolicy    string                            `json:"memoryPolicy"`
	ReservedMemory  []kubeletconfig.MemoryReservation `json:"reservedMemory"`
	TopologyPolicy  string                            `json:"topologyPolicy"`
	TopologyScope   string                            `json:"topologyScope"`
	TopologyOptions map[string]string                 `json:"topologyOptions"`
	Containers      map[string][2]string              `json:"containers"`
	Files           map[string][]byte                 `json:"files"`
	Pods            []*v1.Pod                         `json:"pods"`
	Steps           []step                            `json:"steps"`
}

type machine struct {
	Nodes   []numaNode `json:"nodes"`
	Sockets int        `json:"sockets"`
	CPUs    int        `json:"cpus"`
}

type numaNode struct {
	ID        int         `json:"id"`
	Memory    uint64      `json:"memory"`
	Distances []uint64    `json:"distances"`
	HugePages []hugePages `json:"hugePages"`
	Cores     []core      `json:"cores"`
}

type hugePages struct {
	SizeKiB uint64 `json:"sizeKiB"`
	Count   uint64 `json:"count"`
}

type core struct {
	Socket  int   `json:"socket"`
	Threads []int `json:"threads"`
	Uncore  *int  `json:"uncore"`
}

// A step is one of: a pod to admit, the UID of a pod that is gone, a container to create, a
// container that has stopped, or a restart.
type step struct {
	Admit   *v1.Pod    `json:"admit"`
	Gone    types.UID  `json:"gone"`
	Create  *container `json:"create"`
	Stop    string     `json:"stop"`
	Restart bool       `json:"restart"`
}

type container struct {
	Pod  types.UID `json:"pod"`
	Name string    `json:"name"`
	ID   string    `json:"id"`
}

type nodeAnswer struct {
	Error string            `json:"error"`
	Steps []stepAnswer      `json:"steps"`
	Files map[string][]byte `json:"files"`
}

type stepAnswer struct {
	Admit   bool                                   `json:"admit"`
	Reason  string                                 `json:"reason"`
	Message string                                 `json:"message"`
	Error   string                                 `json:"error"`
	Default string                                 `json:"default"`
	CPUs    map[string]map[string]string           `json:"cpus"`
	Machine memorystate.NUMANodeMap                `json:"machine"`
	Blocks  memorystate.ContainerMemoryAssignments `json:"blocks"`
}

func (q *nodeQuestion) answer() (nodeAnswer, error) {
	directory, err := os.MkdirTemp("", "kubelet-")
	if err != nil {
		return nodeAnswer{}, err
	}
	defer os.RemoveAll(directory)
	for name, blob := range q.Files {
		if err := os.WriteFile(filepath.Join(directory, name), blob, 0o600); err != nil {
			return nodeAnswer{}, err
		}
	}
	pods := &activePods{pods: append([]*v1.Pod{}, q.Pods...)}
	managers, err := q.start(directory, pods)
	if err != nil {
		return nodeAnswer{Error: err.Error()}, nil
	}
	answer := nodeAnswer{Steps: []stepAnswer{}, Files: map[string][]byte{}}
	for _, next := range q.Steps {
		done := stepAnswer{}
		if next.Restart {
			managers, err = q.start(directory, pods)
			if err != nil {
				answer.Steps = append(answer.Steps, stepAnswer{Error: err.Error()})
				return answer, nil
			}
		} else {
			done = managers.do(next)
		}
		managers.describe(&done)
		answer.Steps = append(answer.Steps, done)
	}
	for _, name := range []string{"cpu_manager_state", "memory_manager_state"} {
		blob, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			return nodeAnswer{}, err
		}
		answer.Files[name] = blob
	}
	return answer, nil
}

type managers struct {
	cpu      cpumanager.Manager
	memory   memorymanager.Manager
	topology topologymanager.Manager
	pods     *activePods
}

func (q *nodeQuestion) start(directory string, pods *activePods) (*managers, error) {
	info := q.Machine.info()
	logger := klog.Background()
	topology, err := topologymanager.NewManager(
		info.Topology, q.TopologyPolicy, q.TopologyScope, q.TopologyOptions)
	if err != nil {
		return nil, err
	}
	reserved, err := cpuset.Parse(q.ReservedCPUs)
	if err != nil {
		return nil, err
	}
	cpu, err := cpumanager.NewManager(logger, q.CPUPolicy, q.CPUOptions, 1000*time.Hour, info,
		reserved, q.NodeReserved, directory, topology)
	if err != nil {
		return nil, err
	}
	memory, err := memorymanager.NewManager(logger, q.MemoryPolicy, info, q.NodeReserved,
		q.ReservedMemory, directory, topology)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	before := pods.count()
	if err := cpu.Start(ctx, pods.list, ready{}, noStatus{}, noRuntime{}, q.containerMap()); err != nil {
		return nil, err
	}
	if q.CPUPolicy == "static" {
		// The first reconciliation runs beside us; it asks for the pods twice.
		for pods.count() < before+2 {
			time.Sleep(50 * time.Microsecond)
		}
	}
	if err := memory.Start(ctx, pods.list, ready{}, noStatus{}, noRuntime{}, q.containerMap()); err != nil {
		return nil, err
	}
	topology.AddHintProvider(logger, cpu)
	topology.AddHintProvider(logger, memory)
	return &managers{cpu, memory, topology, pods}, nil
}

func (q *nodeQuestion) containerMap() containermap.ContainerMap {
	found := containermap.NewContainerMap()
	for id, ref := range q.Containers {
		found.Add(ref[0], ref[1], id)
	}
	return found
}

func (m *managers) do(next step) stepAnswer {
	logger := klog.Background()
	done := stepAnswer{}
	switch {
	case next.Admit != nil:
		m.pods.add(next.Admit)
		result := m.topology.Admit(&lifecycle.PodAdmitAttributes{Pod: next.Admit})
		done.Admit, done.Reason, done.Message = result.Admit, result.Reason, result.Message
		if !result.Admit {
			m.pods.remove(next.Admit.UID)
		}
	case next.Gone != "":
		m.pods.remove(next.Gone)
	case next.Create != nil:
		for _, pod := range m.pods.list() {
			if pod.UID != next.Create.Pod {
				continue
			}
			for _, one := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				if one.Name == next.Create.Name {
					m.cpu.AddContainer(logger, pod, &one, next.Create.ID)
					m.memory.AddContainer(logger, pod, &one, next.Create.ID)
					m.topology.AddContainer(pod, &one, next.Create.ID)
				}
			}
		}
	case next.Stop != "":
		if err := m.topology.RemoveContainer(next.Stop); err != nil {
			done.Error = err.Error()
		}
		if err := m.cpu.RemoveContainer(logger, next.Stop); err != nil {
			done.Error = err.Error()
		}
		if err := m.memory.RemoveContainer(logger, next.Stop); err != nil {
			done.Error = err.Error()
		}
	}
	return done
}

func (m *managers) describe(done *stepAnswer) {
	state := m.cpu.State()
	done.Default = state.GetDefaultCPUSet().String()
	done.CPUs = map[string]map[string]string{}
	for pod, containers := range state.GetCPUAssignments() {
		done.CPUs[pod] = map[string]string{}
		for name, cpus := range containers {
			done.CPUs[pod][name] = cpus.String()
		}
	}
	done.Machine = m.memory.State().GetMachineState()
	done.Blocks = m.memory.State().GetMemoryAssignments()
}

func (m machine) info() *cadvisorapi.MachineInfo {
	info := &cadvisorapi.MachineInfo{NumCores: m.CPUs, NumSockets: m.Sockets}
	for _, node := range m.Nodes {
		next := cadvisorapi.Node{Id: node.ID, Memory: node.Memory, Distances: node.Distances}
		for _, pages := range node.HugePages {
			next.HugePages = append(next.HugePages,
				cadvisorapi.HugePagesInfo{PageSize: pages.SizeKiB, NumPages: pages.Count})
		}
		for number, one := range node.Cores {
			found := cadvisorapi.Core{Id: number, SocketID: one.Socket, Threads: one.Threads}
			if one.Uncore != nil {
				found.UncoreCaches = []cadvisorapi.Cache{{Id: *one.Uncore, Level: 3}}
			}
			next.Cores = append(next.Cores, found)
		}
		info.Topology = append(info.Topology, next)
	}
	return info
}

// activePods are the pods of the node; the CPU manager's own goroutine asks for them too.
type activePods struct {
	mutex sync.Mutex
	pods  []*v1.Pod
	asked int
}

func (a *activePods) list() []*v1.Pod {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.asked++
	return append([]*v1.Pod{}, a.pods...)
}

func (a *activePods) count() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.asked
}

func (a *activePods) add(pod *v1.Pod) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.pods = append(a.pods, pod)
}

func (a *activePods) remove(uid types.UID) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var left []*v1.Pod
	for _, pod := range a.pods {
		if pod.UID != uid {
			left = append(left, pod)
		}
	}
	a.pods = left
}

type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

type noStatus struct{}

func (noStatus) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

type noRuntime struct{}

func (noRuntime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}
