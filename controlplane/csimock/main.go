// Command csimock is the node service of Kubernetes' mock CSI driver, whose errors a test writes
// into a file.
//
// Started with its socket, the file and a log. The file is read at each call: JSON, method ->
// name of a gRPC code such as "DEADLINE_EXCEEDED", with which the call is answered instead of by
// the driver, or "NEVER": there is no answer. Each answered call adds a line to the log: method
// and name of the code.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	mock "k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

const never = "NEVER"

type answers struct {
	errors string
	lock   sync.Mutex
	log    *os.File
}

func main() {
	log, err := os.Create(os.Args[3])
	check(err)
	answers := &answers{errors: os.Args[2], log: log}
	listener, err := net.Listen("unix", os.Args[1])
	check(err)
	server := grpc.NewServer(grpc.UnaryInterceptor(answers.intercept))
	csi.RegisterNodeServer(server, mock.New(mock.Config{
		DriverName:            "csi.example.com",
		DisableAttach:         true,
		NodeExpansionRequired: true,
		PermissiveTargetPath:  true,
	}))
	check(server.Serve(listener))
}

func (a *answers) intercept(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	method := path.Base(info.FullMethod)
	reply, err := a.answer(ctx, request, method, handler)
	a.lock.Lock()
	defer a.lock.Unlock()
	fmt.Fprintln(a.log, method, status.Code(err))
	return reply, err
}

func (a *answers) answer(
	ctx context.Context, request any, method string, handler grpc.UnaryHandler,
) (any, error) {
	text, err := os.ReadFile(a.errors)
	check(err)
	planned := map[string]string{}
	check(json.Unmarshal(text, &planned))
	name := planned[method]
	if name == "" {
		return handler(ctx, request)
	}
	if name == never {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	code := codes.OK
	check(code.UnmarshalJSON([]byte(`"` + name + `"`)))
	return nil, status.Error(code, "planned")
}

func check(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}
