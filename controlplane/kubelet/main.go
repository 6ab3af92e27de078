// Command kubelet says what the kubelet's resource managers decide.
//
// It reads JSON lines from standard input and writes one JSON line for each. A question is either
// a list of hints to merge, or a machine with its policies and steps: pods to admit, pods that are
// gone, containers that are created, restarts. CPU manager, memory manager and topology manager
// are the kubelet's own. Used by the differential test of bindery.nodecore.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/features"
)

type question struct {
	Gates map[string]bool `json:"gates"`
	Merge *mergeQuestion  `json:"merge"`
	Node  *nodeQuestion   `json:"node"`
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := answerAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answerAll(in io.Reader, out io.Writer) error {
	reader := bufio.NewReaderSize(in, 1<<20)
	writer := bufio.NewWriter(out)
	defer writer.Flush()
	for {
		line, err := reader.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			return err
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			return err
		}
		answer, err := answerOne(asked)
		if err != nil {
			return err
		}
		written, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		if _, err := writer.Write(append(written, '\n')); err != nil {
			return err
		}
	}
}

func answerOne(asked question) (any, error) {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(asked.Gates); err != nil {
		return nil, err
	}
	if asked.Merge != nil {
		return asked.Merge.answer()
	}
	return asked.Node.answer()
}
