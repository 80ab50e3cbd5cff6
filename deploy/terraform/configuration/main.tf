# What each machine is given: settings, and a first-boot script that installs GoQueue and the systemd unit.
# It needs no provider, so other clouds can use it, and it can be applied without any account.

terraform {
  required_version = ">= 1.5"
}

variable "addresses" {
  description = "Private addresses of the nodes, in the order of their ids."
  type        = list(string)

  validation {
    condition     = contains([1, 3, 5], length(var.addresses))
    error_message = "A cluster has 1, 3 or 5 first nodes; others join later."
  }
}

variable "racks" {
  description = "The rack of each node, such as its zone; replicas of a partition are put in different ones."
  type        = list(string)
}

variable "package" {
  description = "What pip installs: goqueue[server,grpc], a version of it, or the address of a wheel."
  type        = string
  default     = "goqueue[server,grpc]"
}

variable "device" {
  description = "The disk for the data, as the machine sees it; made into a file system if it has none."
  type        = string
}

variable "settings" {
  description = "Further settings by section and name, as docs/settings.md lists them."
  type        = any
  default     = {}
}

variable "security" {
  description = "Of the listeners for clients: plaintext, ssl, sasl_plaintext or sasl_ssl."
  type        = string
  default     = "sasl_plaintext"

  validation {
    condition     = contains(["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"], var.security)
    error_message = "Write plaintext, ssl, sasl_plaintext or sasl_ssl."
  }
}

variable "secrets" {
  description = "Environment with secrets, such as GOQUEUE_CLUSTER_SECRET and GOQUEUE_INITIAL_ADMIN."
  type        = map(string)
  sensitive   = true
}

locals {
  peers = join(",", [for index, address in var.addresses : "${index + 1}@${address}:7000"])

  # What the module needs for itself goes before what is given.
  settings = [
    for index, address in var.addresses : {
      for section in setunion(keys(var.settings), ["node", "cluster", "listeners"]) :
      section => merge(
        lookup(var.settings, section, {}),
        section == "node" ? { id = index + 1, data_dir = "/var/lib/goqueue" } : {},
        section != "cluster" ? {} : merge(
          { rack = var.racks[index] },
          length(var.addresses) > 1 ? { peers = local.peers } : {},
        ),
        section != "listeners" ? {} : {
          kafka                 = "${var.security}://${address}:9092"
          http                  = "${var.security}://${address}:8080"
          registry              = "${var.security}://${address}:8081"
          grpc                  = "${var.security}://${address}:9000"
          internal              = "${address}:7000"
          allow_unauthenticated = var.security == "plaintext"
        },
      )
    }
  ]
}

output "settings" {
  description = "The settings file of each node."
  value       = [for one in local.settings : yamlencode(one)]
}

output "user_data" {
  description = "The script of the first boot of each node."
  sensitive   = true
  value = [
    for one in local.settings : templatefile("${path.module}/first-boot.sh.tftpl", {
      device   = var.device
      package  = var.package
      settings = base64encode(yamlencode(one))
      secrets  = base64encode(join("", [for name, text in var.secrets : "${name}=${text}\n"]))
      unit     = base64encode(file("${path.module}/../../systemd/goqueue.service"))
    })
  ]
}
