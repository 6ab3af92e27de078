// Command devices is a device plugin whose devices a test writes into a file.
//
// Started with the name of the resource and of the file, which is read again several times a
// second: JSON with the list `devices` (`id`, `unhealthy`, `zone`) and `refusal`, the text with
// which it answers an allocation; empty to allow it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

const interval = 100 * time.Millisecond

type device struct {
	ID        string `json:"id"`
	Unhealthy bool   `json:"unhealthy"`
	Zone      *int64 `json:"zone"`
}

type content struct {
	Devices []device `json:"devices"`
	Refusal string   `json:"refusal"`
}

func main() {
	resource, file := os.Args[1], os.Args[2]
	ctx := context.Background()
	found := read(file)
	refusal := atomic.Value{}
	refusal.Store(found.Refusal)
	socket := pluginapi.DevicePluginPath + "devices.sock"
	stub := plugin.NewDevicePluginStub(
		klog.FromContext(ctx), listed(found), socket, resource, false, false)
	stub.SetAllocFunc(func(
		request *pluginapi.AllocateRequest, _ map[string]*pluginapi.Device,
	) (*pluginapi.AllocateResponse, error) {
		if text := refusal.Load().(string); text != "" {
			return nil, errors.New(text)
		}
		return allocated(request), nil
	})
	check(stub.Start(ctx))
	check(stub.Register(ctx, pluginapi.KubeletSocket, resource, pluginapi.DevicePluginPath))
	go stub.Watch(ctx, pluginapi.KubeletSocket, resource, pluginapi.DevicePluginPath)
	for {
		time.Sleep(interval)
		next := read(file)
		refusal.Store(next.Refusal)
		if !reflect.DeepEqual(next.Devices, found.Devices) {
			stub.Update(listed(next))
		}
		found = next
	}
}

func read(file string) content {
	text, err := os.ReadFile(file)
	check(err)
	found := content{}
	check(json.Unmarshal(text, &found))
	return found
}

func listed(found content) []*pluginapi.Device {
	devices := []*pluginapi.Device{}
	for _, each := range found.Devices {
		one := &pluginapi.Device{ID: each.ID, Health: pluginapi.Healthy}
		if each.Unhealthy {
			one.Health = pluginapi.Unhealthy
		}
		if each.Zone != nil {
			one.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: *each.Zone}}}
		}
		devices = append(devices, one)
	}
	return devices
}

// allocated returns a variable DEVICES with the ids for each container.
func allocated(request *pluginapi.AllocateRequest) *pluginapi.AllocateResponse {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		names := ""
		for _, id := range container.DevicesIds {
			names += id + " "
		}
		response.ContainerResponses = append(response.ContainerResponses,
			&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": names}})
	}
	return response
}

func check(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}
