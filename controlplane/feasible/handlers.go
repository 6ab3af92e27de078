package main

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	corev1informers "k8s.io/client-go/informers/core/v1"
	resourcev1informers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// handlers are the registrations at the informers whose objects the filters copy to caches of their
// own. That an informer has synced does not mean that these caches have its objects.
type handlers struct {
	registered []cache.ResourceEventHandlerRegistration
}

// recorded is an informer that notes who registers.
type recorded struct {
	cache.SharedIndexInformer
	notes *handlers
}

func (r *recorded) AddEventHandler(
	handler cache.ResourceEventHandler,
) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := r.SharedIndexInformer.AddEventHandler(handler)
	if err == nil {
		r.notes.registered = append(r.notes.registered, registration)
	}
	return registration, err
}

// record makes the informers of the factory note who registers, before anything asks for them.
func record(factory informers.SharedInformerFactory) *handlers {
	notes := &handlers{}
	type maker = func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer
	for object, made := range map[runtime.Object]maker{
		&v1.PersistentVolume{}: func(c kubernetes.Interface, d time.Duration) cache.SharedIndexInformer {
			return corev1informers.NewPersistentVolumeInformer(c, d, cache.Indexers{})
		},
		&v1.PersistentVolumeClaim{}: func(c kubernetes.Interface, d time.Duration) cache.SharedIndexInformer {
			namespaced := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
			return corev1informers.NewPersistentVolumeClaimInformer(c, "", d, namespaced)
		},
		&resourcev1.ResourceClaim{}: func(c kubernetes.Interface, d time.Duration) cache.SharedIndexInformer {
			namespaced := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
			return resourcev1informers.NewResourceClaimInformer(c, "", d, namespaced)
		},
		&resourcev1.ResourceSlice{}: func(c kubernetes.Interface, d time.Duration) cache.SharedIndexInformer {
			return resourcev1informers.NewResourceSliceInformer(c, d, cache.Indexers{})
		},
		&resourcev1.DeviceClass{}: func(c kubernetes.Interface, d time.Duration) cache.SharedIndexInformer {
			return resourcev1informers.NewDeviceClassInformer(c, d, cache.Indexers{})
		},
	} {
		factory.InformerFor(object, func(c kubernetes.Interface, d time.Duration) cache.SharedIndexInformer {
			return &recorded{made(c, d), notes}
		})
	}
	return notes
}

// wait returns whether all handlers have got all objects; not, if the context ends first.
func (h *handlers) wait(ctx context.Context) bool {
	synced := make([]cache.InformerSynced, len(h.registered))
	for index, registration := range h.registered {
		synced[index] = registration.HasSynced
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}
