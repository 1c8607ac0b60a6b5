// Command controlplane is etcd and the parts of Kubernetes in one executable file, for tests.
//
// The first argument names the part; the others are that part's own flags.  Each part runs in a
// process of its own, because feature gates and metrics belong to the process.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: controlplane PART [FLAG]...")
		os.Exit(2)
	}
	part := os.Args[1]
	// Each part takes what follows its own name for its flags.
	os.Args = os.Args[1:]
	if part == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, known := parts[part]
	if !known {
		fmt.Fprintf(os.Stderr, "%s is no part of the control plane\n", part)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
