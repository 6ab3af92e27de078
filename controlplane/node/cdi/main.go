// Command cdi injects CDI devices into a container as containerd does, with its library.
//
// Reads lines of JSON: `directory` with CDI files, `devices` to inject, and `env`, the container's
// own variables. Answers each with `env` and `mounts` of the container, and `errors`: those of the
// files, and of the injection.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sort"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type question struct {
	Directory string   `json:"directory"`
	Devices   []string `json:"devices"`
	Env       []string `json:"env"`
}

type answer struct {
	Env    []string `json:"env"`
	Mounts []string `json:"mounts"`
	Errors []string `json:"errors"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if err := output.Encode(inject(asked)); err != nil {
			panic(err)
		}
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

func inject(asked question) answer {
	found := answer{Env: []string{}, Mounts: []string{}, Errors: []string{}}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(asked.Directory), cdi.WithAutoRefresh(false))
	if err != nil {
		panic(err)
	}
	for path, errs := range cache.GetErrors() {
		for _, each := range errs {
			found.Errors = append(found.Errors, path+": "+each.Error())
		}
	}
	container := &oci.Spec{Process: &oci.Process{Env: asked.Env}}
	if _, err := cache.InjectDevices(container, asked.Devices...); err != nil {
		found.Errors = append(found.Errors, err.Error())
	}
	found.Env = append(found.Env, container.Process.Env...)
	for _, mount := range container.Mounts {
		found.Mounts = append(found.Mounts, mount.Destination)
	}
	sort.Strings(found.Errors)
	return found
}
