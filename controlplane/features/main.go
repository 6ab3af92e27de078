// Command features says which declared features a pod needs (KEP-5328).
//
// It reads JSON lines from standard input, each a pod, and writes one JSON line for each: the names
// of the features that the pod needs of its node, and those of all that Kubernetes knows. Used by
// the differential test.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
)

type answer struct {
	Required []string `json:"required"`
	Known    []string `json:"known"`
}

func main() {
	if err := answerAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answerAll(in io.Reader, out io.Writer) error {
	decoder, writer := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	known := []string{}
	for _, feature := range features.AllFeatures {
		known = append(known, feature.Name())
	}
	for {
		var pod v1.Pod
		if err := decoder.Decode(&pod); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		needed, err := ndf.DefaultFramework.InferForPodScheduling(
			&ndf.PodInfo{Spec: &pod.Spec}, version.MustParse("1.36.0"))
		if err != nil {
			return err
		}
		names, err := ndf.DefaultFramework.Unmap(needed)
		if err != nil {
			return err
		}
		if err := writer.Encode(answer{append([]string{}, names...), known}); err != nil {
			return err
		}
	}
}
