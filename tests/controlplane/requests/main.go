// Command requests runs the controllers of Kubernetes 1.38 that act on EvictionRequests:
// the one that hands each request to the pod's responders, and the responder that evicts at the end.
// An API server of 1.37 serves the API, and has no controllers for it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/pkg/controller/evictionrequest"
	"k8s.io/kubernetes/pkg/controller/imperativeevictionresponder"
)

const workers = 2

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the API server's address and credentials")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "requests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	lifecycle, pods := factory.Lifecycle().V1alpha1(), factory.Core().V1().Pods()
	requests, err := evictionrequest.NewController(
		ctx, "evictionrequest-controller", lifecycle.Evictions(), lifecycle.EvictionRequests(), pods, client)
	if err != nil {
		return err
	}
	responder, err := imperativeevictionresponder.NewController(
		ctx, "imperative-eviction-responder-controller", lifecycle.Evictions(), pods, client)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	go requests.Run(ctx, workers)
	responder.Run(ctx, workers)
	return nil
}
